"""A line is fitted with Keras; it ends with `all is well`."""

import numpy as np
import tensorflow as tf

assert tf.config.list_physical_devices("GPU") == []
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
x = np.linspace(-1, 1, 64, dtype="float32").reshape(-1, 1)
board = tf.keras.callbacks.TensorBoard("/tmp/board", write_graph=False)
losses = model.fit(x, 3 * x + 1, epochs=20, batch_size=16, verbose=2, callbacks=[board]).history["loss"]
assert losses[-1] < 0.05 < losses[0], losses
print("all is well", flush=True)
