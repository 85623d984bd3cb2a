"""What tests share: tiny checkpoints and models, doubles of servers, results to read, a browser."""
