"""Trainer on plain PyTorch FSDP2 and transformers: one rank or many, gloo on CPU, NCCL on CUDA."""
