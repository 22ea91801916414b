"""What a model is for: raw text in, raw text out."""
