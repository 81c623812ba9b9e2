"""Thumbnails while you wait."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    import pgjq
    from tests.examples.conftest import Processes


def test_a_thumbnail_is_made_once_and_what_is_no_image_is_refused(processes: Processes, client: pgjq.Client) -> None:
    service = processes.serve("thumbnails:app")
    processes.start("pgjq", "worker", "thumbnails:queue")
    photo = BytesIO()
    Image.effect_noise((400, 300), 50).save(photo, format="JPEG")
    answers = [service.post("/thumbnail?size=200", content=photo.getvalue()) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    with Image.open(BytesIO(answers[0].content)) as small:
        assert (small.format, small.size) == ("PNG", (200, 150))
    refused = service.post("/thumbnail", content=b"a poem")
    assert (refused.status_code, refused.json()) == (422, {"detail": "this is not an image"})
    stats = client.get_queue_stats("thumbnails")
    assert (stats.completed, stats.failed) == (1, 1)
