#!/usr/bin/env python3
"""Writes conversions.txt: float32 values and their codes in narrow formats, as PyTorch and ml_dtypes round them.

A line: target dtype, float32 bits, code by ml_dtypes, code by PyTorch (all hexadecimal); NaN is written as "nan".
The two differ where float8_e4m3fn overflows: ml_dtypes gives NaN, PyTorch saturates. PyTorch does not convert to
float4_e2m1fn: "-".
Values: every code of the fp4 and fp8 formats and a spread of 16-bit codes, their midpoints, and the float32 neighbours of both.
Made with torch 2.13.0, ml_dtypes 0.6.0, numpy 2.4.6: python3 make_conversions.py > conversions.txt
"""
import ml_dtypes
import numpy as np
import torch

FORMATS = {
    "float16": (torch.float16, np.float16, np.uint16),
    "bfloat16": (torch.bfloat16, ml_dtypes.bfloat16, np.uint16),
    "float8_e4m3fn": (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn, np.uint8),
    "float8_e5m2": (torch.float8_e5m2, ml_dtypes.float8_e5m2, np.uint8),
    "float4_e2m1fn": (None, ml_dtypes.float4_e2m1fn, np.uint8),
}

np.seterr(all="ignore")
for name, (torch_type, numpy_type, code_type) in FORMATS.items():
    step = 1 if code_type is np.uint8 else 331
    last = 2 ** (ml_dtypes.finfo(numpy_type).bits - 1)
    codes = np.arange(0, last, step, dtype=code_type)
    low = codes.view(numpy_type).astype(np.float64)
    high = (codes + code_type(1)).view(numpy_type).astype(np.float64)
    exact = np.concatenate([low, (low + high) / 2])
    exact = exact[np.isfinite(exact)].astype(np.float32)
    largest = float(low[np.isfinite(low)].max())
    edge = np.array([largest * f for f in (1.01, 1.03, 1.0357142857, 1.04, 1.0625, 1.125, 1.25, 2, 16)], np.float32)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-45, 1.17549435e-38], np.float32)
    values = np.concatenate([exact, edge, special])
    values = np.concatenate([values, np.nextafter(values, np.float32(np.inf)), np.nextafter(values, np.float32(-np.inf))])
    values = np.unique(np.concatenate([values, -values]).view(np.uint32)).view(np.float32)
    by_numpy = values.astype(numpy_type)
    columns = [by_numpy.view(code_type)]
    if torch_type is not None:
        by_torch = torch.from_numpy(values).to(torch_type).view(torch.uint8 if code_type is np.uint8 else torch.int16)
        columns.append(by_torch.numpy().view(code_type))
    for value, *row in zip(values.view(np.uint32), *columns):
        texts = []
        for code in row:
            is_nan = np.isnan(np.array([code], code_type).view(numpy_type).astype(np.float32))[0]
            texts.append("nan" if is_nan else f"{code:x}")
        print(name, f"{value:08x}", *texts, *["-"] * (2 - len(texts)))
