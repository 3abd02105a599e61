"""Train a small neural network on handwritten digits, with nothing but NumPy."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np


def read_data(place: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (8 x 8 pixels, 0 to 1) and their digits, from digits.csv.gz or the folder that holds it."""
    file = place / "digits.csv.gz" if place.is_dir() else place
    table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    return table[:, :-1] / 16.0, table[:, -1].astype(np.int64)


class Network:
    """One hidden layer of rectified units, softmax at the end."""

    def __init__(self, inputs: int, hidden: int, outputs: int, random: np.random.Generator) -> None:
        self.weights = [
            random.normal(0, np.sqrt(2 / inputs), (inputs, hidden)).astype(np.float32),
            np.zeros(hidden, np.float32),
            random.normal(0, np.sqrt(2 / hidden), (hidden, outputs)).astype(np.float32),
            np.zeros(outputs, np.float32),
        ]
        self.speeds = [np.zeros_like(weight) for weight in self.weights]

    def predict(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The hidden layer's values and the probabilities of each digit."""
        first, first_bias, second, second_bias = self.weights
        hidden = np.maximum(images @ first + first_bias, 0)
        scores = hidden @ second + second_bias
        scores -= scores.max(axis=1, keepdims=True)
        exponents = np.exp(scores)
        return hidden, exponents / exponents.sum(axis=1, keepdims=True)

    def learn(self, images: np.ndarray, digits: np.ndarray, rate: float) -> float:
        """One step of gradient descent with momentum; returns the loss before it."""
        hidden, probabilities = self.predict(images)
        rows = np.arange(len(digits))
        loss = float(-np.log(probabilities[rows, digits] + 1e-9).mean())
        error = probabilities
        error[rows, digits] -= 1
        error /= len(digits)
        back = (error @ self.weights[2].T) * (hidden > 0)
        gradients = [images.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
        for weight, speed, gradient in zip(self.weights, self.speeds, gradients, strict=True):
            speed *= 0.9
            speed -= rate * gradient
            weight += speed
        return loss

    def measure_accuracy(self, images: np.ndarray, digits: np.ndarray) -> float:
        """The share of images whose digit is recognised."""
        return float((self.predict(images)[1].argmax(axis=1) == digits).mean())


def main() -> None:
    """Train, test, and write the model and its accuracy to the output folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data_url", type=Path, default=Path(__file__).parent / "data", help="digits.csv.gz or its folder"
    )
    parser.add_argument("--train_url", type=Path, default=Path("output"), help="folder for the results")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    images, digits = read_data(options.data_url)
    random = np.random.default_rng(options.seed)
    order = random.permutation(len(images))
    images, digits = images[order], digits[order]
    held_back = len(images) // 5
    test_images, test_digits = images[:held_back], digits[:held_back]
    images, digits = images[held_back:], digits[held_back:]
    print(f"{len(images)} images to learn from, {held_back} to test with")

    network = Network(images.shape[1], options.hidden, 10, random)
    steps = len(images) // options.batch_size
    accuracy = 0.0
    for epoch in range(1, options.epochs + 1):
        started = time.perf_counter()
        order = random.permutation(len(images))
        for step in range(1, steps + 1):
            batch = order[(step - 1) * options.batch_size : step * options.batch_size]
            loss = network.learn(images[batch], digits[batch], options.lr)
            if step % 10 == 0:
                print(f"epoch: {epoch} step: {step}, loss is {loss:.4f}")
        seconds = time.perf_counter() - started
        accuracy = network.measure_accuracy(test_images, test_digits)
        print(
            f"epoch: {epoch}, accuracy: {accuracy:.4f}, {steps * options.batch_size / seconds:.0f} images/s"
        )

    options.train_url.mkdir(parents=True, exist_ok=True)
    names = ("hidden_weights", "hidden_biases", "output_weights", "output_biases")
    np.savez(options.train_url / "model.npz", **dict(zip(names, network.weights, strict=True)))
    result = {"accuracy": round(accuracy, 4), "epochs": options.epochs, "test_images": held_back}
    (options.train_url / "accuracy.json").write_text(json.dumps(result) + "\n")
    print(f"accuracy: {accuracy:.4f}")


if __name__ == "__main__":
    main()
