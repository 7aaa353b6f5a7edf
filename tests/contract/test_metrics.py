from holdfast import MetricKind, StateStoreCustomMetric, StateStoreMetrics

HITS = StateStoreCustomMetric("hits", "cache hits")
TIME = StateStoreCustomMetric("time", "time spent", MetricKind.TIMING)


def test_combine_adds_up():
    parts = [StateStoreMetrics(1, 10, {HITS: 1, TIME: 0}), StateStoreMetrics(2, 20, {HITS: 5}), StateStoreMetrics(0, 0)]
    assert StateStoreMetrics.combine(parts) == StateStoreMetrics(3, 30, {HITS: 6, TIME: 0})
    assert StateStoreMetrics.combine([]) == StateStoreMetrics(0, 0, {})
