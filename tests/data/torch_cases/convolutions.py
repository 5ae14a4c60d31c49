"""Convolutions of one to three dimensions and their transposes, and adaptive pools. Run in this folder."""
import torch.nn.functional as F

from case import values, write_autograd

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def case(op, f, name, x, weight, bias, counts, **attributes):
    inputs = {"x": (values(*x, seed=1), "input"), "weight": (values(*weight, seed=2), "param")}
    if bias:
        inputs["bias"] = (values(bias, seed=3), "param")
    write_autograd(op, name, attributes, lambda *given: f[len(weight) - 2](*given, **attributes), inputs, counts=counts)


def conv(name, x, weight, bias=0, counts=None, **attributes):
    case("conv", CONV, name, x, weight, bias, counts, **attributes)


def transposed(name, x, weight, bias=0, counts=None, **attributes):
    case("conv_transpose", TRANSPOSED, name, x, weight, bias, counts, **attributes)


conv("1d", (2, 3, 9), (4, 3, 3), 4, {"y": 10, "grad_x": 12, "grad_weight": 18, "grad_bias": 18}, padding=[1])
conv("1d_no_batch_strided", (3, 12), (2, 3, 4), 0, {"y": 12, "grad_x": 4, "grad_weight": 6}, stride=[2], padding=[1])
conv("1d_causal_depthwise", (2, 4, 7), (4, 1, 4), 4, {"y": 5}, padding=[3], groups=4)
conv("2d_alexnet", (1, 3, 11, 10), (4, 3, 5, 5), 4, {"y": 76}, stride=[4, 4], padding=[2, 2])
conv("2d_all", (2, 4, 8, 9), (6, 2, 3, 2), 6, {"y": 13, "grad_weight": 24}, stride=[2, 3], padding=[1, 2], dilation=[2, 1], groups=2)
conv("2d_same", (1, 2, 5, 6), (3, 2, 4, 3), 3, None, padding="same", dilation=[1, 2])
conv("2d_pointwise", (2, 5, 3, 4), (4, 5, 1, 1), 0, {"y": 5, "grad_x": 4, "grad_weight": 24})
conv("2d_stride_beyond_kernel", (1, 2, 9, 8), (3, 2, 2, 1), 3, {"grad_x": 3}, stride=[3, 4])
conv("3d", (2, 2, 4, 5, 6), (3, 2, 3, 2, 4), 3, {"y": 49}, stride=[1, 2, 2], padding=[1, 0, 2])
conv("3d_patches", (2, 3, 2, 4, 4), (6, 3, 2, 2, 2), 6, {"y": 25, "grad_x": 6}, stride=[2, 2, 2])

transposed("1d", (2, 3, 5), (3, 4, 3), 4, {"y": 7, "grad_x": 12, "grad_weight": 10, "grad_bias": 20}, stride=[2], padding=[1], output_padding=[1])
transposed("1d_no_batch_dilated", (3, 6), (3, 2, 3), 0, {"y": 9}, dilation=[3])
transposed("2d_all", (2, 4, 4, 5), (4, 3, 3, 2), 6, None, stride=[2, 3], padding=[1, 0], output_padding=[1, 2], dilation=[2, 1], groups=2)
transposed("2d_stride_beyond_kernel", (1, 2, 3, 4), (2, 3, 2, 1), 3, {"y": 3}, stride=[3, 2])
transposed("2d_beyond_last_window", (1, 2, 2, 2), (2, 2, 1, 1), 2, None, stride=[3, 3], output_padding=[2, 1])
transposed("3d_grouped", (1, 4, 3, 2, 3), (4, 1, 3, 3, 2), 4, None, stride=[2, 1, 2], padding=[1, 1, 0], groups=4)

for name, x, size, average, largest in (
    ("1d", (2, 3, 11), [4], F.adaptive_avg_pool1d, F.adaptive_max_pool1d),
    ("2d_global", (2, 3, 4, 5), [1, 1], F.adaptive_avg_pool2d, F.adaptive_max_pool2d),
    ("2d_no_batch", (3, 5, 7), [3, 2], F.adaptive_avg_pool2d, F.adaptive_max_pool2d),
    ("3d_finer", (1, 2, 3, 4, 5), [2, 6, 4], F.adaptive_avg_pool3d, F.adaptive_max_pool3d),
):
    attributes = {"output_size": size}
    x = values(*x, seed=4)
    write_autograd("adaptive_avg_pool", name, attributes, lambda x: average(x, size), {"x": (x, "input")})
    write_autograd("adaptive_max_pool", name, attributes, lambda x: largest(x, size), {"x": (x, "input")})
