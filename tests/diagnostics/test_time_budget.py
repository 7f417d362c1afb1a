"""An analysis with too little time ends early, with what it has."""

from fedloom.core.key import Key
from fedloom.diagnostics.curvature import top_eigenpairs
from fedloom.diagnostics.time_budget import TimeBudget
from fedloom.diagnostics.trace_estimation import estimate_diagonal, hutch_plus_plus
from support.golden import golden
from support.golden_surface import golden_surface

KEY = Key.root(5)


def test_every_part_stops_when_its_time_is_up() -> None:
    """With a clock that advances a second per look, all three parts are truncated and say so."""
    gold = golden("fedalign/h_hessian")
    ticks = iter(range(10_000))
    surface = golden_surface(gold)
    budget = TimeBudget(1.0, 3, lambda *progress: None, lambda: float(next(ticks)))
    eigen = top_eigenpairs(surface, 2, KEY, keep_going=budget.start_part("eigen"))
    assert len(eigen.values) == 0 and 0 < eigen.lower_bound <= float(gold["eig_exact"].abs().max())
    diagonal = estimate_diagonal(
        surface.hessian_products,
        surface.weight_vector,
        surface.sizes,
        KEY,
        50,
        budget.start_part("probes", 50),
    )
    assert 2 <= diagonal.trace.probes < 50
    plus = hutch_plus_plus(
        surface.hessian_products, surface.weight_vector, KEY, 50, budget.start_part("hutch++", 48)
    )
    assert 6 <= plus.probes < 48
    assert budget.truncated == ["eigen", "probes", "hutch++"]
