"""What the page takes for granted: a storage."""

import os

import pgjq

storage = pgjq.open_storage(os.environ["PGJQ_URL"])
