"""A project with three backends: the usual one, one in another schema, and one in memory."""

import importlib.util
import os

SECRET_KEY = "tests"
ALLOWED_HOSTS = ["testserver"]
ROOT_URLCONF = "work.urls"
DEBUG = os.environ.get("PROJECT_DEBUG") == "1"
USE_TZ = os.environ.get("PROJECT_USE_TZ") != "0"
TIME_ZONE = "Europe/Berlin"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "pgjq.django",
    "work",
]
if importlib.util.find_spec("django.tasks") is None:
    INSTALLED_APPS.append("django_tasks")
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"],
        "CONN_MAX_AGE": None,
        "TEST": {"NAME": f"{os.environ['PGDATABASE']}_test"},
    }
}
TASKS = {
    "default": {
        "BACKEND": "pgjq.django.PgjqBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"tasks": {"work.tasks.tuned": {"max_attempts": 5, "retry_delay": 60}}},
    },
    "other": {
        "BACKEND": "pgjq.django.PgjqBackend",
        "OPTIONS": {"schema": "other schema", "max_attempts": 1},
    },
    "memory": {"BACKEND": "pgjq.django.PgjqBackend", "OPTIONS": {"storage": "memory:"}},
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
