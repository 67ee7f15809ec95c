"""The causal one-pass forward by hand, as a careful person writes it: what the generated kernel is compared with.

y = scale · (L ∘ q kᵀ) v with L lower triangular. One program owns a batch element, a head and a block of P, and walks the chunks with the
N × P state in registers. Rows come through host descriptors over [batch, T, heads · features], which bound the last chunk.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["scale"])
def one_pass(q, k, v, y, scale, T, H: tl.constexpr, N: tl.constexpr, P: tl.constexpr, CHUNK: tl.constexpr, BLOCK_P: tl.constexpr):
    """q, k: descriptors of [1, CHUNK, N] blocks; v, y: of [1, CHUNK, BLOCK_P]."""
    block = tl.program_id(0) % (P // BLOCK_P)
    stream = tl.program_id(0) // (P // BLOCK_P)
    batch, head = stream // H, stream % H
    lane = tl.arange(0, CHUNK)
    seen = lane[:, None] >= lane[None, :]
    state = tl.zeros([N, BLOCK_P], tl.float32)
    for chunk in range(tl.cdiv(T, CHUNK)):
        row = chunk * CHUNK
        query = q.load([batch, row, head * N]).reshape(CHUNK, N)
        key = k.load([batch, row, head * N]).reshape(CHUNK, N)
        value = v.load([batch, row, head * P + block * BLOCK_P]).reshape(CHUNK, BLOCK_P)
        weights = tl.where(seen, tl.dot(query, tl.trans(key)), 0.0)
        out = tl.dot(query, state.to(query.dtype))
        out = tl.dot(weights.to(value.dtype), value, out)
        y.store([batch, row, head * P + block * BLOCK_P], (out * scale).to(y.dtype).reshape(1, CHUNK, BLOCK_P))
        state = tl.dot(tl.trans(key), value, state)
