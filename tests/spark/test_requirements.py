from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgjq.spark.requirements import RequirementError, check_java, check_spark, java_version

if TYPE_CHECKING:
    from pathlib import Path


def pretend(directory: Path, said: str) -> None:
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21" x', 21),
        ("?", None),
    ],
)
def test_a_javas_version_is_read(said: str, version: int | None) -> None:
    assert java_version(said) == version


def test_an_old_java_is_named_with_how_to_get_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RequirementError, match=r"bin/java is Java 11\. Spark needs Java 17 .*openjdk-17-jre-headless"):
        check_java()


def test_no_java_is_said_with_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequirementError, match=r"Java not found\. Spark needs Java 17"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RequirementError, match="could not be run"):
        check_java()


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0", "4.1.2"])
def test_an_old_spark_is_named(version: str) -> None:
    with pytest.raises(RequirementError, match=f"needs Spark 4.2 or newer, and this is {version}"):
        check_spark(version)
    check_spark("4.3.0")
