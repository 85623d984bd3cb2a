"""The whole residual stream: embeddings, MLPs and the unembedding beside the heads, from weights alone."""
