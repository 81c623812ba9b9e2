"""The storage conformance suite: the contract that every storage keeps."""
