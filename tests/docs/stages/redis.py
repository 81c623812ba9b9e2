"""What the page takes for granted: imports."""

import pgjq
