"""Reads what PyTorch saves with a program in it: torch.export's archives and TorchScript's."""
