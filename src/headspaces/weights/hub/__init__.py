"""Repositories of the Hugging Face Hub, read by byte ranges."""
