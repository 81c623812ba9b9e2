"""The storage interface (`base`) and its implementations, which do not know each other."""
