"""The register of masks: a kind is one file here and one line below."""

from __future__ import annotations

from contractor.program.masks.mask import Kind

MASKS: dict[str, Kind] = {}
