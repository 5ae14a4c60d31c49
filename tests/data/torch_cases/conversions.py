"""Cases of the operators that convert: cast, bitcast, quantize, dequantize, quantize_fp8_block, quantize_mx, fp8_block_matmul.
Rounding is PyTorch's own where it has the mode; to zero and to nearest away, and the e8m0 scales, are bit arithmetic on
float32 codes."""
import ml_dtypes
import numpy as np
import torch

from case import values, write_case


def awkward():
    """Float32 values around every kind of boundary of the narrower formats."""
    around = [v * s for v in (2.0**-149, 2.0**-126, 2.0**-24, 2.0**-9, 2.0**-10, 3 * 2.0**-11, 1.0, 240.0, 448.0, 464.0, 57344.0,
                              61440.0, 65504.0, 65520.0, 3.3895314e38) for s in (1, -1)]
    x = np.array(around + [0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    fractions = np.float32(1) + np.arange(0, 2**23, 2**17 - 2**9, dtype=np.uint32) / np.float32(2**23)
    return torch.from_numpy(np.concatenate([x, np.nextafter(x, np.float32(0)), np.nextafter(x, np.float32(9)), fractions]).astype(np.float32))


def stored(y, dtype):
    """A tensor of `dtype` as an array that write_case knows by that name."""
    name = str(dtype).split(".")[-1]
    bits = y.view(torch.uint16 if y.element_size() == 2 else torch.uint8).numpy()
    return y.numpy() if name == "float16" else bits.view(getattr(ml_dtypes, name))


for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2):
    name = str(dtype).split(".")[-1]
    x = awkward().requires_grad_()
    y = x.to(dtype)
    g = torch.ones_like(x).to(dtype)
    y.backward(g)
    # PyTorch 2.13 saturates this format and no other.
    write_case("cast", f"to_{name}", {"to": name, "saturate": dtype == torch.float8_e4m3fn},
               [("x", x, "input"), ("grad_y", stored(g, dtype), "grad_output")],
               [("y", stored(y.detach(), dtype), "output"), ("grad_x", x.grad, "grad_input")])
write_case("cast", "to_float8_e4m3fn_overflow", {"to": "float8_e4m3fn"}, [("x", x, "input")],
           [("y", x.detach().numpy().astype(ml_dtypes.float8_e4m3fn), "output")])
x = x.detach()[x.isfinite()]


def short_mantissa(x, fraction_bits, rounding):
    """float32 with its fraction cut; finite x that do not overflow."""
    code, drop = x.numpy().view(np.uint32).astype(np.uint64), 23 - fraction_bits
    half = np.uint64(1 << (drop - 1))
    odd = (code >> np.uint64(drop)) & np.uint64(1)
    code += {"toward_zero": np.uint64(0), "nearest_away": half, "nearest_even": half - np.uint64(1) + odd}[rounding]
    code &= ~np.uint64((1 << drop) - 1)
    return code.astype(np.uint32).view(np.float32)


for name, bits in (("tfloat32", 10), ("hfloat32", 11)):
    for rounding in ("toward_zero", "nearest_away", "nearest_even"):
        write_case("cast", f"to_{name}_{rounding}", {"to": name, "rounding": rounding}, [("x", x, "input")],
                   [("y", short_mantissa(x, bits, rounding), "output")])

x = awkward()
codes = torch.tensor([0, 1, -1, 0x7F80, 0x7F81, -0x80, 0x3F80], dtype=torch.int16)  # 0x7f81, 0xff80: bfloat16's NaN, -inf
write_case("bitcast", "float32_to_int32", {}, [("x", x, "index")], [("y", x.view(torch.int32), "index")])
write_case("bitcast", "int16_to_bfloat16", {}, [("x", codes, "index")], [("y", stored(codes.view(torch.bfloat16), torch.bfloat16), "index")])
write_case("bitcast", "float64_to_int64", {}, [("x", x.double(), "index")], [("y", x.double().view(torch.int64), "index")])

# Scales are powers of two here, so that x / scale and x (1 / scale), which PyTorch computes, are the same number. Fake
# quantization, since FBGEMM's quantize_per_tensor adds the zero point before it rounds: ties differ if that is odd.
x = values(3, 7, low=-40, high=40, seed=1).float()


def quantize(case, attributes, scale, zero, low, high):
    per = (-1, *[1] * (x.dim() - 1)) if scale.dim() else ()
    if scale.dim():
        y = torch.fake_quantize_per_channel_affine(x, scale, zero.int(), attributes["axis"], low, high)
    else:
        y = torch.fake_quantize_per_tensor_affine(x, scale.item(), zero.item(), low, high)
    code = (y / scale.reshape(per)).long() + zero.reshape(per)
    given = [("scale", scale, "param"), ("zero_point", zero, "index")]
    write_case("quantize", case, attributes, [("x", x, "input")] + given, [("code", code, "index"), ("dequantized", y, "output")])
    attributes = {k: v for k, v in attributes.items() if k == "axis"}
    write_case("dequantize", case, attributes, [("code", code.to(torch.int16), "input")] + given, [("y", y.double(), "output")])


quantize("per_tensor", {}, torch.tensor(0.25), torch.tensor(3), -128, 127)
quantize("per_tensor_four_bits", {"quant_min": -8, "quant_max": 7}, torch.tensor(4.0), torch.tensor(0), -8, 7)
quantize("per_tensor_unsigned", {"to": "uint8"}, torch.tensor(0.5), torch.tensor(64), 0, 255)
quantize("per_channel", {"axis": 0}, torch.tensor([0.25, 0.5, 2.0]), torch.tensor([0, -5, 7]), -128, 127)
code, scale = values(3, 5, low=-400, high=400, seed=2).to(torch.float8_e4m3fn), values(2, 3, low=.01, high=.1, seed=3)
spread = scale.repeat_interleave(2, 0)[:3].repeat_interleave(2, 1)[:, :5]
write_case("dequantize", "blocks", {"block": [2, 2]}, [("code", stored(code, torch.float8_e4m3fn), "input"), ("scale", scale, "param")],
           [("y", code.double() * spread, "output")])


def blocks(x, block):
    """amax per block, and a function that spreads a value per block over its elements."""
    rows, columns = (range(0, x.shape[i], block[i]) for i in (0, 1))
    amax = torch.stack([torch.stack([x[r:r + block[0], c:c + block[1]].abs().max() for c in columns]) for r in rows])
    return amax, lambda s: s.repeat_interleave(block[0], 0)[:x.shape[0]].repeat_interleave(block[1], 1)[:, :x.shape[1]]


def quantized(op, case, attributes, x, scale, spread, dtype, largest):
    s = spread(scale)
    code = (x / s).clamp(-largest, largest).to(dtype)
    write_case(op, case, attributes, [("x", x, "input")],
               [("code", stored(code, dtype), "output"), ("scale", scale, "output"), ("dequantized", code.float() * s, "output")])


for case, block, dtype, shape in (("weights", [8, 16], torch.float8_e4m3fn, (10, 17)), ("small_e5m2", [2, 3], torch.float8_e5m2, (5, 7))):
    x = values(*shape, seed=4).float()
    x[:2, :3] = 0  # the floor of amax
    name, largest = str(dtype).split(".")[-1], torch.finfo(dtype).max
    amax, spread = blocks(x, block)
    quantized("quantize_fp8_block", case, {"to": name, "block": block}, x, amax.clamp(min=1e-4) / largest, spread, dtype, largest)


def mx_scale(amax, dtype, rounding):
    largest, top = torch.finfo(dtype).max, 8 if dtype == torch.float8_e4m3fn else 15
    m, e = torch.frexp(amax)  # 1/2 <= m < 1: floor(log2 amax) = e - 1
    exponent = e - 1 - top
    if rounding == "ceil":
        exponent += (amax > largest * torch.exp2(exponent.double())).int()
    return torch.exp2(torch.where(amax == 0, -127, exponent).double()).float()


for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
    for rounding in ("floor", "ceil"):
        name = str(dtype).split(".")[-1]
        x = values(3, 70, low=-500, high=500, seed=5).float()
        x[1, :32] = 0
        x[2, :32] *= 2.0**-20
        x[0, 32:64] = torch.where(x[0, 32:64].abs() > 448, 0, x[0, 32:64])
        x[0, 40] = 448  # ceil: just not too large
        amax, spread = blocks(x, (1, 32))
        quantized("quantize_mx", f"{name}_{rounding}", {"to": name, "scale_rounding": rounding}, x, mx_scale(amax, dtype, rounding),
                  spread, dtype, torch.finfo(dtype).max)



# FP4: ml_dtypes rounds to the codes, which are kept as numbers.
def fp4(v):
    return torch.from_numpy(v.clamp(-6, 6).numpy().astype(ml_dtypes.float4_e2m1fn).astype(np.float32))


def write_fp4(op, case, attributes, x, more, code, scale, factor, made=()):
    outputs = [("code", code, "output"), ("scale", scale, "output"), *made, ("dequantized", code * factor, "output")]
    write_case(op, case, attributes, [("x", x, "input"), *more], outputs)


x = values(3, 70, low=-500, high=500, seed=11).float()
x[1, :32] = 0
x[2, :16] *= 2.0**-12
x[0, :8] = torch.tensor([5, 2.5, 3.5, 1.75, 1.25, 0.75, 0.25, 6.0])  # ties of the scale 1
x[0, 8:32] = 0
amax, spread = blocks(x, (1, 32))
m, e = torch.frexp(amax)
scale = torch.exp2(torch.where(amax == 0, -127, e - 3).double()).float()
write_fp4("quantize_mx", "float4_e2m1", {"to": "float4_e2m1"}, x, [], fp4(x / spread(scale)), scale, spread(scale))
amax, spread = blocks(x, (1, 16))
for case, given in (("two_levels", None), ("given_global", torch.tensor(0.25))):
    level = x.abs().max() / (6 * 448) if given is None else given
    scale = (amax / 6 / level).clamp(max=448).to(torch.float8_e4m3fn).float()
    factor = spread(scale) * level
    code = torch.where(factor == 0, 0, fp4(torch.where(factor == 0, 0, x / factor)))
    more = [] if given is None else [("global_scale", given, "input")]
    write_fp4("quantize_nvfp4", case, {}, x, more, code, scale, factor, [("global_scale_used", level, "output")])

a, b = (values(*shape, low=-400, high=400, seed=s).to(torch.float8_e4m3fn) for shape, s in (((2, 10), 6), ((5, 10), 7)))
for case, attributes, rows in (("ragged", {"block": 4}, 4), ("scale_per_row", {"block": 4, "rows": 1}, 1)):
    scale_a, scale_b = values(2, 3, low=.01, high=.1, seed=8), values(-(-5 // rows), 3, low=.01, high=.1, seed=9)
    whole_a = a.double() * scale_a.repeat_interleave(4, 1)[:, :10]
    whole_b = b.double() * scale_b.repeat_interleave(rows, 0)[:5].repeat_interleave(4, 1)[:, :10]
    write_case("fp8_block_matmul", case, attributes,
               [("a", stored(a, torch.float8_e4m3fn), "input"), ("scale_a", scale_a, "input"),
                ("b", stored(b, torch.float8_e4m3fn), "param"), ("scale_b", scale_b, "param")],
               [("y", whole_a @ whole_b.T, "output")], {"y": 4 + 3})
