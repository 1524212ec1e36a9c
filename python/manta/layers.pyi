"""The types of manta.layers, written by tools/layer_stubs.py; docstrings are in the package."""
from collections.abc import Sequence
from typing import Any

from manta.models._graph import Tensor as Tensor
from manta.models._words import Config

_Ints = int | Sequence[int | None] | None
_Pair = int | Sequence[int] | None
_Pairs = int | Sequence[int | Sequence[int]]
_Config = str | Config | dict[str, Any] | None

class Layer:
    class_name: str
    trainable: bool
    @property
    def name(self) -> str: ...
    def get_config(self) -> dict[str, Any]: ...
    def __call__(self, inputs: Tensor | Sequence[Tensor]) -> Tensor: ...

class InputLayer(Layer):
    def __init__(self, shape: Sequence[int] | None = None, dtype: str = "float32", name: str | None = None,
                 batch_shape: Sequence[int | None] | None = None) -> None: ...

def Input(shape: Sequence[int] | None = None, dtype: str = "float32", name: str | None = None,
          batch_shape: Sequence[int | None] | None = None) -> Tensor: ...

class Dense(Layer):
    def __init__(self, units: int = ..., activation: str | None = ..., use_bias: bool = ...,
                 kernel_initializer: _Config = ..., bias_initializer: _Config = ..., kernel_regularizer: _Config = ...,
                 bias_regularizer: _Config = ..., *, name: str | None = ..., trainable: bool = ...,
                 dtype: str | None = ..., input_shape: Sequence[int] | None = ..., data_format: str | None = ...,
                 seed: int | None = ...) -> None: ...

class Conv2D(Layer):
    def __init__(self, filters: int = ..., kernel_size: _Pair = ..., strides: _Pair = ..., padding: str | None = ..., *,
                 pad: _Pairs = ..., dilation_rate: _Pair = ..., groups: int = ..., activation: str | None = ...,
                 use_bias: bool = ..., kernel_initializer: _Config = ..., bias_initializer: _Config = ...,
                 kernel_regularizer: _Config = ..., bias_regularizer: _Config = ..., name: str | None = ...,
                 trainable: bool = ..., dtype: str | None = ..., input_shape: Sequence[int] | None = ...,
                 data_format: str | None = ..., seed: int | None = ...) -> None: ...

class DepthwiseConv2D(Layer):
    def __init__(self, kernel_size: _Pair = ..., strides: _Pair = ..., padding: str | None = ..., *, pad: _Pairs = ...,
                 depth_multiplier: int = ..., dilation_rate: _Pair = ..., activation: str | None = ...,
                 use_bias: bool = ..., depthwise_initializer: _Config = ..., bias_initializer: _Config = ...,
                 depthwise_regularizer: _Config = ..., bias_regularizer: _Config = ..., name: str | None = ...,
                 trainable: bool = ..., dtype: str | None = ..., input_shape: Sequence[int] | None = ...,
                 data_format: str | None = ..., seed: int | None = ...) -> None: ...

class SeparableConv2D(Layer):
    def __init__(self, filters: int = ..., kernel_size: _Pair = ..., strides: _Pair = ..., padding: str | None = ..., *,
                 pad: _Pairs = ..., depth_multiplier: int = ..., dilation_rate: _Pair = ...,
                 activation: str | None = ..., use_bias: bool = ..., depthwise_initializer: _Config = ...,
                 pointwise_initializer: _Config = ..., bias_initializer: _Config = ...,
                 depthwise_regularizer: _Config = ..., pointwise_regularizer: _Config = ...,
                 bias_regularizer: _Config = ..., name: str | None = ..., trainable: bool = ...,
                 dtype: str | None = ..., input_shape: Sequence[int] | None = ..., data_format: str | None = ...,
                 seed: int | None = ...) -> None: ...

class Conv2DTranspose(Layer):
    def __init__(self, filters: int = ..., kernel_size: _Pair = ..., strides: _Pair = ..., padding: str | None = ..., *,
                 pad: _Pairs = ..., output_padding: _Pair = ..., dilation_rate: _Pair = ...,
                 activation: str | None = ..., use_bias: bool = ..., kernel_initializer: _Config = ...,
                 bias_initializer: _Config = ..., kernel_regularizer: _Config = ..., bias_regularizer: _Config = ...,
                 name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class MaxPooling2D(Layer):
    def __init__(self, pool_size: _Pair = ..., strides: _Pair = ..., padding: str | None = ..., *, pad: _Pairs = ...,
                 count_padding: bool = ..., name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class AveragePooling2D(Layer):
    def __init__(self, pool_size: _Pair = ..., strides: _Pair = ..., padding: str | None = ..., *, pad: _Pairs = ...,
                 count_padding: bool = ..., name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class GlobalAveragePooling2D(Layer):
    def __init__(self, *, keepdims: bool = ..., name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class GlobalMaxPooling2D(Layer):
    def __init__(self, *, keepdims: bool = ..., name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class BatchNormalization(Layer):
    def __init__(self, axis: int = ..., momentum: float | None = ..., epsilon: float | None = ..., center: bool = ...,
                 scale: bool = ..., *, unbiased: bool = ..., gamma_initializer: _Config = ...,
                 beta_initializer: _Config = ..., name: str | None = ..., trainable: bool = ...,
                 dtype: str | None = ..., input_shape: Sequence[int] | None = ..., data_format: str | None = ...,
                 seed: int | None = ...) -> None: ...

class LayerNormalization(Layer):
    def __init__(self, axis: _Ints = ..., epsilon: float | None = ..., center: bool = ..., scale: bool = ..., *,
                 gamma_initializer: _Config = ..., beta_initializer: _Config = ..., name: str | None = ...,
                 trainable: bool = ..., dtype: str | None = ..., input_shape: Sequence[int] | None = ...,
                 data_format: str | None = ..., seed: int | None = ...) -> None: ...

class Dropout(Layer):
    def __init__(self, rate: float | None = ..., noise_shape: _Ints = ..., *, name: str | None = ...,
                 trainable: bool = ..., dtype: str | None = ..., input_shape: Sequence[int] | None = ...,
                 data_format: str | None = ..., seed: int | None = ...) -> None: ...

class Flatten(Layer):
    def __init__(self, *, name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class Reshape(Layer):
    def __init__(self, target_shape: _Ints = ..., *, name: str | None = ..., trainable: bool = ...,
                 dtype: str | None = ..., input_shape: Sequence[int] | None = ..., data_format: str | None = ...,
                 seed: int | None = ...) -> None: ...

class Permute(Layer):
    def __init__(self, dims: _Ints = ..., *, name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class Activation(Layer):
    def __init__(self, activation: str | None = ..., *, name: str | None = ..., trainable: bool = ...,
                 dtype: str | None = ..., input_shape: Sequence[int] | None = ..., data_format: str | None = ...,
                 seed: int | None = ...) -> None: ...

class ReLU(Layer):
    def __init__(self, max_value: float | None = ..., negative_slope: float | None = ..., threshold: float | None = ...,
                 *, name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class LeakyReLU(Layer):
    def __init__(self, negative_slope: float | None = ..., *, name: str | None = ..., trainable: bool = ...,
                 dtype: str | None = ..., input_shape: Sequence[int] | None = ..., data_format: str | None = ...,
                 seed: int | None = ...) -> None: ...

class ELU(Layer):
    def __init__(self, alpha: float | None = ..., *, name: str | None = ..., trainable: bool = ...,
                 dtype: str | None = ..., input_shape: Sequence[int] | None = ..., data_format: str | None = ...,
                 seed: int | None = ...) -> None: ...

class Softmax(Layer):
    def __init__(self, axis: int = ..., *, name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class Add(Layer):
    def __init__(self, *, name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class Subtract(Layer):
    def __init__(self, *, name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class Multiply(Layer):
    def __init__(self, *, name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class Concatenate(Layer):
    def __init__(self, axis: int = ..., *, name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class ZeroPadding2D(Layer):
    def __init__(self, padding: _Pairs = ..., *, name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class Cropping2D(Layer):
    def __init__(self, cropping: _Pairs = ..., *, name: str | None = ..., trainable: bool = ...,
                 dtype: str | None = ..., input_shape: Sequence[int] | None = ..., data_format: str | None = ...,
                 seed: int | None = ...) -> None: ...

class UpSampling2D(Layer):
    def __init__(self, size: _Pair = ..., *, interpolation: str | None = ..., name: str | None = ...,
                 trainable: bool = ..., dtype: str | None = ..., input_shape: Sequence[int] | None = ...,
                 data_format: str | None = ..., seed: int | None = ...) -> None: ...

class Rescaling(Layer):
    def __init__(self, scale: float | None = ..., offset: float | None = ..., *, name: str | None = ...,
                 trainable: bool = ..., dtype: str | None = ..., input_shape: Sequence[int] | None = ...,
                 data_format: str | None = ..., seed: int | None = ...) -> None: ...

class Normalization(Layer):
    def __init__(self, *, mean: Any = ..., variance: Any = ..., invert: bool = ..., axis: int = ...,
                 name: str | None = ..., trainable: bool = ..., dtype: str | None = ...,
                 input_shape: Sequence[int] | None = ..., data_format: str | None = ..., seed: int | None = ...) -> None: ...

class Embedding(Layer):
    def __init__(self, input_dim: int = ..., output_dim: int = ..., embeddings_initializer: _Config = ...,
                 embeddings_regularizer: _Config = ..., *, name: str | None = ..., trainable: bool = ...,
                 dtype: str | None = ..., input_shape: Sequence[int] | None = ..., data_format: str | None = ...,
                 seed: int | None = ...) -> None: ...

class LayerScale(Layer):
    def __init__(self, init_values: float | None = ..., projection_dim: int = ..., *, name: str | None = ...,
                 trainable: bool = ..., dtype: str | None = ..., input_shape: Sequence[int] | None = ...,
                 data_format: str | None = ..., seed: int | None = ...) -> None: ...

class StochasticDepth(Layer):
    def __init__(self, drop_path_rate: float | None = ..., *, name: str | None = ..., trainable: bool = ...,
                 dtype: str | None = ..., input_shape: Sequence[int] | None = ..., data_format: str | None = ...,
                 seed: int | None = ...) -> None: ...

class CustomScaleLayer(Layer):
    def __init__(self, scale: float | None = ..., *, name: str | None = ..., trainable: bool = ...,
                 dtype: str | None = ..., input_shape: Sequence[int] | None = ..., data_format: str | None = ...,
                 seed: int | None = ...) -> None: ...

MaxPool2D = MaxPooling2D
AvgPool2D = AveragePooling2D
GlobalAvgPool2D = GlobalAveragePooling2D
GlobalMaxPool2D = GlobalMaxPooling2D
Convolution2D = Conv2D
