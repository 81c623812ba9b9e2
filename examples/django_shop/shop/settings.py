"""Settings: PostgreSQL as PGHOST and its kin say, or with SHOP_STORAGE=memory nothing outside this process."""

import importlib.util
import os

import django

SECRET_KEY = "only for this example"  # noqa: S105
DEBUG = os.environ.get("SHOP_DEBUG") == "1"
ALLOWED_HOSTS = ["testserver", "localhost"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
IN_MEMORY = os.environ.get("SHOP_STORAGE") == "memory"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "pgjq.django",
    "shop",
]
if importlib.util.find_spec("django.tasks") is None:
    INSTALLED_APPS.append("django_tasks")  # Django 5.2

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

if IN_MEMORY:
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
else:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ.get("PGDATABASE", "shop"),
            "HOST": os.environ.get("PGHOST", ""),
            "PORT": os.environ.get("PGPORT", ""),
            "USER": os.environ.get("PGUSER", ""),
            "PASSWORD": os.environ.get("PGPASSWORD", ""),
        }
    }

TASKS = {
    "default": {
        "BACKEND": "pgjq.django.PgjqBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {
            "expire_in_seconds": 300,  # Of every task.
            "tasks": {"shop.tasks.send_receipt": {"retry_delay": 30, "max_attempts": 5}},
            **({"storage": "memory:"} if IN_MEMORY else {}),
        },
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DJANGO_VERSION = django.VERSION
