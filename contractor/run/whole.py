"""The backward of a contraction that has a pass of its own (a form's flow "whole"): the gradient of every operand from one routine."""

from __future__ import annotations

from dataclasses import replace

from contractor.run.gradient import Arrived, Run, Tensors, laid_out, summed_over_groups
from contractor.schedules.parts.form import Task


def whole_backward(task: Task, tensors: Tensors, arrived: Arrived, wanted: frozenset[str], run: Run) -> Tensors:
    """The gradients of the wanted tensors. No state is scaled as the result is, so the gradient of one comes in as much larger."""
    form = replace(task.form, flow="whole", final=arrived.final is not None)
    inputs = {**tensors, "arrived": arrived.result.to(tensors["value"].dtype)}
    if arrived.final is not None:
        inputs["final_gradient"] = arrived.final / task.scale
    outputs = run(replace(task, form=form), inputs, tensors["value"].dtype)
    gates = {gate.name: laid_out(gate, tensors[gate.name], outputs["gate_gradient"]) for gate in form.gates if gate.name in wanted}
    rest = {name: outputs[f"{name}_gradient"] for name in wanted - {*gates} if f"{name}_gradient" in outputs}
    return gates | {name: one if name == "initial" else summed_over_groups(one, tensors[name]) for name, one in rest.items()}
