"""Language models: specs, the decoder, families of checkpoints, loading and saving, adapters."""
