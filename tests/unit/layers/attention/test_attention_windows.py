"""Windows of local attention: ends of sentences, lengths of their own, gradients of a predicted centre."""

from __future__ import annotations

import torch

from regard.layers.attention.masked_softmax import masked_softmax
from regard.layers.attention.windows import PredictedCentre, gaussian, window_keep

KEEP = torch.arange(8) < torch.tensor([8, 3])[:, None]


def test_no_window_lies_outside_its_sentence():
    for half in (0, 1, 5):
        for centres in (torch.arange(30).expand(2, 30), torch.tensor([[0.0, 7.9, 8.0], [2.9, 3.0, 99.0]])):
            if half == 0 and centres.is_floating_point():
                continue  # a real centre lies between words
            window = window_keep(centres, 8, half, KEEP)
            assert window.any(-1).all()
            assert not window[1, :, 3:].any()


def test_a_real_centre_is_not_rounded():
    window = window_keep(torch.tensor([[2.5], [0.4]]), 8, 1, KEEP)
    assert window[0, 0].nonzero()[:, 0].tolist() == [2, 3]
    assert window[1, 0].nonzero()[:, 0].tolist() == [0, 1]


def test_a_predicted_centre_depends_on_the_sentence_and_not_on_its_padding():
    torch.manual_seed(0)
    module, query = PredictedCentre(4, 5), torch.randn(1, 3, 4).expand(2, 3, 4)
    centres = module(query, KEEP.sum(-1))
    torch.testing.assert_close(centres[0] / 8, centres[1] / 3)
    assert (centres > 0).all()
    assert (centres < KEEP.sum(-1)[:, None]).all()


def test_a_predicted_centre_learns_through_the_gaussian_alone():
    """The window itself has no gradient; the Gaussian moves the centre to the word that is asked for."""
    torch.manual_seed(0)
    module, query = PredictedCentre(4, 5), torch.randn(1, 1, 4)
    keep, scores = torch.ones(1, 12, dtype=torch.bool), torch.zeros(1, 1, 12)
    optimiser = torch.optim.Adam(module.parameters(), lr=0.2)
    for _ in range(40):
        centres = module(query, keep.sum(-1))
        weights = masked_softmax(scores, window_keep(centres, 12, 4, keep)) * gaussian(centres, 12, 2.0)
        loss = -weights[0, 0, 8].log()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert abs(module(query, keep.sum(-1)).item() - 8) < 0.6
    assert all(p.grad.isfinite().all() for p in module.parameters())


def test_long_sentences_are_told_apart_in_half_precision():
    """1,000 and 1,001 are one number in bfloat16, and no two neighbours differ there above 256."""
    centres = torch.tensor([[1000.0]], dtype=torch.float16)
    keep = torch.ones(1, 4000, dtype=torch.bool)
    assert window_keep(centres, 4000, 2, keep)[0, 0].nonzero()[:, 0].tolist() == [998, 999, 1000, 1001, 1002]
    far = gaussian(torch.tensor([[3000.0]], dtype=torch.float16), 4000, 1.0)
    assert far.dtype == torch.float32
    assert far[0, 0].argmax().item() == 3000
    assert far[0, 0, 3001].item() < 0.7
