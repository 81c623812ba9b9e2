"""The port (`base`) and its adapters. An adapter knows nothing of another."""
