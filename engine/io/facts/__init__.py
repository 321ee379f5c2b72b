"""Facts: values about nodes and pods that the API does not hold, with their age.

Owns where they come from (annotations, Prometheus, and what is learned from pods: `demand`,
`outcomes`), the life of these sources (`live_facts`), saving what was learned (`learned`), and the
store in which readings age (`store`). Which facts there are is configuration
(`policy.fact_config`); policies read them as fields of pods and nodes, and say what they are good
for. A decision never waits for facts; a start and a switch wait some seconds for first readings.

Begin with `store` (pure), then `live_facts`.
"""
