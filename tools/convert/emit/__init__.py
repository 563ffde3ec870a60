"""What a conversion writes: model.h, model.c, model_weights.c, plan.json, model.npz, the report."""
