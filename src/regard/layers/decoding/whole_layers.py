"""One step of a decoder for few rows in one kernel for each sub-layer: three a layer with a source, and two without.

Where they are taken says `kernel_choice`.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from regard.layers.attention.cache import CacheState
from regard.layers.decoding.decoder import Decoder, Source
from regard.layers.decoding.pending import Pending, settle
from regard.layers.decoding.whole_attention import attend_text
from regard.layers.decoding.whole_feed_forward import feed
from regard.layers.decoding.whole_source_attention import attend_source

MOST_ROWS = 8  # every program reads the parts of all its rows
MOST_PLACES = 2048  # that one program looks at; beyond, several programs share them
MOST_HEADS = 32  # each leaves a part
MOST_WIDTH, MOST_INNER = 2048, 8192  # of states, and inside of feed-forward layers
MOST_HEAD = 256  # bytes of a head's query: beyond, a program would need more registers than there are


def fits(decoder: Decoder, rows: int, source: Source | None, state: CacheState) -> bool:
    """Whether steps of so many rows can be taken so."""
    if rows > MOST_ROWS or decoder.heads > MOST_HEADS or decoder.width > MOST_WIDTH or decoder.rotary is not None:
        return False
    head = state.keys[0].shape[-1] * decoder.embedding.element_size()
    if head > MOST_HEAD or max(len(layer.inner.weight) for layer in decoder.layers) > MOST_INNER:
        return False
    places = [min(state.filled + 1, state.capacity) * state.hidden.shape[1]]
    places += [] if source is None else [source.keep.shape[1]]
    return max(places) <= MOST_PLACES


def whole_layers(
    decoder: Decoder, x: Float[Tensor, "N D"], source: Source | None, state: CacheState
) -> Float[Tensor, "N D"]:
    """The states of the next tokens. Writes into the state's caches."""
    pending = Pending(x)
    longest = min(state.filled + 1, state.capacity)
    for i, layer in enumerate(decoder.layers):
        norm, after = (layer.attend_norm, None) if decoder.pre else (None, layer.attend_norm)
        pending = attend_text(
            pending, norm, layer.attend, layer.attended, state.keys[i], state.values[i], state.hidden, state.positions,
            heads=decoder.heads, scale=decoder.scale, longest=longest, after=after, residual=decoder.residual,
        )  # fmt: skip
        if layer.cross is not None and source is not None:
            query, out, own = layer.cross
            norm, after = (own, None) if decoder.pre else (None, own)
            pending = attend_source(
                pending, norm, query, out, source.keys[i], source.values[i], source.keep,
                scale=decoder.scale, after=after, residual=decoder.residual,
            )  # fmt: skip
        norm, after = (layer.feed_norm, None) if decoder.pre else (None, layer.feed_norm)
        pending = feed(
            pending, norm, layer.inner, layer.outer, decoder.activation, after=after, residual=decoder.residual
        )
    return settle(pending, decoder.last_norm, x.dtype)
