#pragma once

#include <cstdint>

namespace assay::align {

/// What a plan takes devices for. Rates are what is reached, not what is on the data sheet.
struct Devices {
  /// Of a device, floating-point operations per second: Llama 3 405B on H100 (arXiv 2407.21783, Table 4, 380
  /// to 430 TFLOP/s in bfloat16).
  double flops = 400e12;
  std::int64_t of_node = 8;  ///< DGX H100
  double in_node = 450e9;  ///< bytes per second to devices of the node, each way: NVLink 4 (H100 data sheet)
  double between_nodes = 50e9;  ///< to others: 400 Gb/s a device (DGX H100: eight ConnectX-7)
};

/// Bytes of an element, but of activations, which have what bf16 stores (mixed_precision.h).
struct Storage {
  double parameter = 2;  ///< bfloat16
  double gradient = 4;   ///< Megatron-LM accumulates in float32; 2: ZeRO (arXiv 1910.02054, section 3.1)
  double states = 12;    ///< float32 copy and two moments of Adam (the same section)
  bool float32_residual = true;  ///< TeleChat3's recipe; false: Megatron-LM's default
};

}  // namespace assay::align
