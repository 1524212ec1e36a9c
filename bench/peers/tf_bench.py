#!/usr/bin/env python3
"""TensorFlow's side of bench/compare: one process, one JSON line with the median step.

--loop function is a compiled training step called in a Python loop; --loop fit is
model.fit on a dataset, as the tutorial has it. The first is the faster and the default."""
import os
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from measure import batches, options, report, timed


def mnist_cnn(keras):
    L = keras.layers
    return keras.Sequential([keras.Input((28, 28)), L.Reshape((28, 28, 1)), L.Conv2D(32, 3, activation="relu"), L.Flatten(),
                             L.Dense(128, activation="relu"), L.Dense(10)])


def resnet18(keras):
    L = keras.layers

    def conv(v, filters, size, stride):
        if size > 1:
            v = L.ZeroPadding2D(size // 2)(v)
        return L.BatchNormalization(momentum=0.9, epsilon=1e-5)(L.Conv2D(filters, size, stride, use_bias=False)(v))

    def block(v, filters, stride):
        short = v if stride == 1 and v.shape[-1] == filters else conv(v, filters, 1, stride)
        w = L.ReLU()(conv(v, filters, 3, stride))
        return L.ReLU()(L.Add()([conv(w, filters, 3, 1), short]))

    x = keras.Input((28, 28))
    v = L.ReLU()(conv(L.Reshape((28, 28, 1))(x), 64, 7, 2))
    v = L.MaxPooling2D(3, 2)(L.ZeroPadding2D(1)(v))  # after relu zero padding and no padding have the same maximum
    for stage, filters in enumerate((64, 128, 256, 512)):
        v = block(v, filters, 2 if stage else 1)
        v = block(v, filters, 1)
    return keras.Model(x, L.Dense(10)(L.GlobalAveragePooling2D()(v)))


def main():
    p = options(("mnist-cnn", "resnet18"))
    p.add_argument("--loop", choices=("function", "fit"), default="function")
    p.add_argument("--jit", action="store_true", help="compile the step with XLA")
    args = p.parse_args()

    import tensorflow as tf
    import keras

    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(args.threads)
    model = mnist_cnn(keras) if args.model == "mnist-cnn" else resnet18(keras)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    opt = keras.optimizers.SGD(0.001) if args.model == "mnist-cnn" else keras.optimizers.Adam(0.001)
    count = 1 if args.mode == "startup" else 16
    ready = [(tf.constant(x), tf.constant(y)) for x, y in batches(args.batch, count)]

    if args.loop == "fit" and args.mode == "train":
        import time

        model.compile(optimizer=opt, loss=loss)
        data = tf.data.Dataset.from_tensor_slices((tf.concat([x for x, _ in ready], 0), tf.concat([y for _, y in ready], 0)))
        data = data.repeat().batch(args.batch).prefetch(tf.data.AUTOTUNE)
        model.fit(data, steps_per_epoch=args.warmup, verbose=0)
        model.fit(data, steps_per_epoch=args.steps, verbose=0)
        t = time.perf_counter()
        model.fit(data, steps_per_epoch=args.steps, verbose=0)
        report("tensorflow fit", args, [(time.perf_counter() - t) / args.steps], version=tf.__version__)
        return

    opt.build(model.trainable_variables)

    @tf.function(jit_compile=args.jit)
    def train(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        opt.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)
        return value

    @tf.function(jit_compile=args.jit)
    def forward(x):
        return model(x, training=False)

    if args.mode == "startup":
        print(float(train(*ready[0])), flush=True)
        return
    step = (lambda x, y: train(x, y).numpy()) if args.mode == "train" else (lambda x, y: forward(x).numpy())
    report("tensorflow", args, timed(step, ready, args), version=tf.__version__, jit=args.jit)


if __name__ == "__main__":
    sys.exit(main())
