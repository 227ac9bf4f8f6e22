import numpy as np

from adaptntk.features.last_layer import mean_invariants


def test_it_is_zero_in_the_training_set(fit_by_name, parts):
    distance = fit_by_name("distance")
    assert np.allclose(distance.assess(parts["train"][:5]).score, 0, atol=1e-3)
    assert (distance.assess(parts["test"][:5]).score > 0.01).all()


def test_it_is_the_distance_to_the_nearest_in_standard_deviations(fit_by_name, parts):
    method = fit_by_name("distance").method
    train, test = (
        mean_invariants(method.potential, method.potential.predict(parts[name])) for name in ("train", "test")
    )
    scaled = (test[:, None] - train[None]) / train.std(axis=0)
    expected = np.linalg.norm(scaled, axis=2).min(axis=1)
    assert np.allclose(method.assess(parts["test"]).score, expected, rtol=1e-4)
