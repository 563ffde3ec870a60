"""The plan of the model that a device runs."""

from __future__ import annotations

from microtrain.base.plan import Plan, short_id

from .errors import DeviceError


def check_same_model(plan: Plan, model: str, model_id: str, where: str) -> None:
    """DeviceError, naming both models, where the device does not run what the plan describes."""
    if short_id(plan.model_id) != model_id:
        raise DeviceError(
            f"{where} runs model {model} {model_id}, "
            f"but {plan.path} describes {plan.name} {short_id(plan.model_id)}: "
            "convert, build and upload again, or name the right --plan."
        )
