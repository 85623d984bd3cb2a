"""File formats of weights: safetensors, GGUF and PyTorch archives, and their number formats."""
