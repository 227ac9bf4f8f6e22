from adaptntk.core.posterior import Posterior
from adaptntk.core.selection.problem import Constraints
from tests.core.selection.rules import select


def test_it_holds_the_most_uncertain(features):
    train, pool, lam = features
    posterior = Posterior.fit(train, lam)
    short = posterior.variance(pool).topk(50).indices.sort().values
    expected = select("lcmd", posterior, train, pool[short], 5).indices
    found = select("adaptntk+lcmd", posterior, train, pool, 5).indices
    assert found == [int(short[i]) for i in expected]


def test_it_is_made_longer_where_groups_leave_too_few(features):
    train, pool, lam = features
    posterior = Posterior.fit(train, lam)
    ranked = posterior.variance(pool).argsort(descending=True).tolist()
    groups = [0 if ranked.index(i) < 200 else i for i in range(len(pool))]
    found = select("adaptntk+lcmd", posterior, train, pool, 5, Constraints(groups=groups, per_group_max=1)).indices
    assert len(set(found)) == 5
    assert sum(groups[i] == 0 for i in found) <= 1
