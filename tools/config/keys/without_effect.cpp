#include <algorithm>

#include "assay/config/keys/all.h"
#include "assay/dumps/record/glob.h"

namespace assay::config {
namespace {

// What is saved, printed, measured or named, how long is waited, and which machines take part.
constexpr WithoutEffect rows[] = {
    {Framework::environment, "MASTER_*"},
    {Framework::environment, "*PATH"},
    {Framework::environment, "WANDB_*"},
    {Framework::environment, "*_TIMEOUT*"},
    {Framework::environment, "*_SOCKET_IFNAME"},
    {Framework::environment, "*_DEBUG*"},
    {Framework::environment, "*_LOG*"},
    {Framework::environment, "GLOG_*"},
    {Framework::environment, "OMP_NUM_THREADS"},
    {Framework::environment, "*_VISIBLE_DEVICES"},
    {Framework::environment, "PYTORCH_*_ALLOC_CONF"},
    {Framework::environment, "TOKENIZERS_PARALLELISM"},
    {Framework::environment, "*_ROOT"},
    {Framework::environment, "*_HOME"},
    {Framework::environment, "*_DIR"},
    {Framework::environment, "HF_*"},
    {Framework::environment, "RANK*"},
    {Framework::environment, "NODE_RANK"},
    {Framework::environment, "LOCAL_RANK"},
    {Framework::megatron, "save*"},
    {Framework::megatron, "overlap_param_gather*"},
    {Framework::megatron, "overlap_p2p_comm*"},
    {Framework::megatron, "tp_comm_overlap*"},
    {Framework::megatron, "use_mcore_models"},
    {Framework::megatron, "deprecated_*"},
    {Framework::megatron, "empty_unused_memory_level"},
    {Framework::megatron, "distributed_backend"},
    {Framework::megatron, "check_for_*"},
    {Framework::megatron, "ddp_num_buckets"},
    {Framework::megatron, "ddp_bucket_size"},
    {Framework::megatron, "no_save_*"},
    {Framework::megatron, "log_*"},
    {Framework::megatron, "*tensorboard*"},
    {Framework::megatron, "wandb_*"},
    {Framework::megatron, "*one_logger*"},
    {Framework::megatron, "*_interval"},
    {Framework::megatron, "eval_iters"},
    {Framework::megatron, "timing_*"},
    {Framework::megatron, "*profile*"},
    {Framework::megatron, "distributed_timeout_minutes"},
    {Framework::megatron, "num_workers"},
    {Framework::megatron, "exit_*"},
    {Framework::megatron, "ckpt_*"},
    {Framework::megatron, "*async_save*"},
    {Framework::megatron, "dist_ckpt_*"},
    {Framework::megatron, "manual_gc*"},
    {Framework::megatron, "data_cache_path"},
    {Framework::megatron, "nproc_per_node"},
    {Framework::megatron, "nnodes"},
    {Framework::megatron, "node_rank"},
    {Framework::megatron, "master_*"},
    {Framework::megatron, "rdzv_*"},
    {Framework::megatron, "max_restarts"},
    {Framework::megatron, "local_rank"},
    {Framework::megatron, "rank"},
    {Framework::mindformers, "output_dir"},
    {Framework::mindformers, "recompute_config.*"},
    {Framework::mindformers, "parallel.search_mode"},
    {Framework::mindformers, "parallel.parallel_mode"},
    {Framework::mindformers, "parallel.dataset_strategy*"},
    {Framework::mindformers, "context.max_call_depth"},
    {Framework::mindformers, "context.device_target"},
    {Framework::mindformers, "context.memory_optimize_level"},
    {Framework::mindformers, "context.ascend_config.parallel_speed_up_json_path"},
    {Framework::mindformers, "auto_trans_ckpt"},
    {Framework::mindformers, "load_ckpt_format"},
    {Framework::mindformers, "run_mode"},
    {Framework::mindformers, "use_parallel"},
    {Framework::mindformers, "npu_nums_per_device"},
    {Framework::mindformers, "input_sliced_sig"},
    {Framework::mindformers, "runner_config.sink_*"},
    {Framework::mindformers, "use_legacy"},
    {Framework::mindformers, "layer_scale"},
    {Framework::mindformers, "layer_decay"},
    {Framework::mindformers, "lr_scale_factor"},
    {Framework::mindformers, "init_start_profile"},
    {Framework::mindformers, "train_dataset.input_columns*"},
    {Framework::mindformers, "train_dataset.construct_args_key*"},
    {Framework::mindformers, "callbacks*"},
    {Framework::mindformers, "monitor_config.*"},
    {Framework::mindformers, "*profil*"},
    {Framework::mindformers, "save_*"},
    {Framework::mindformers, "only_save_strategy"},
    {Framework::mindformers, "src_strategy_path_or_dir"},
    {Framework::mindformers, "transform_process_num"},
    {Framework::mindformers, "remove_redundancy"},
    {Framework::mindformers, "trainer.*"},
    {Framework::mindformers, "train_dataset_task.*"},  // the dataset once more
    {Framework::mindformers, "train_dataset.num_parallel_workers"},
    {Framework::mindformers, "train_dataset.prefetch_size"},
    {Framework::mindformers, "train_dataset.numa_enable"},
    {Framework::mindformers, "train_dataset.python_multiprocessing"},
    {Framework::mindformers, "context.max_device_memory"},
    {Framework::mindformers, "context.mempool_block_size"},
    {Framework::mindformers, "context.save_graphs*"},
    {Framework::mindformers, "context.device_id"},
    {Framework::mindformers, "context.affinity_cpu_list"},
    {Framework::mindformers, "parallel.strategy_ckpt_config.*"},
    {Framework::mindformers, "architectures*"},
    {Framework::torchtitan, "job.*"},
    {Framework::torchtitan, "profiling.*"},
    {Framework::torchtitan, "metrics.*"},
    {Framework::torchtitan, "comm.*"},
    {Framework::torchtitan, "checkpoint.*"},
    {Framework::torchtitan, "training.gc_freq"},
    {Framework::torchtitan, "model.print_after_conversion"},
    {Framework::deepspeed, "steps_per_print"},
    {Framework::deepspeed, "wall_clock_breakdown"},
    {Framework::deepspeed, "dump_state"},
    {Framework::deepspeed, "*flops_profiler*"},
    {Framework::deepspeed, "*tensorboard*"},
    {Framework::deepspeed, "*wandb*"},
    {Framework::deepspeed, "csv_monitor*"},
    {Framework::deepspeed, "comms_logger*"},
    {Framework::huggingface, "transformers_version"},
    {Framework::huggingface, "_name_or_path"},
    {Framework::huggingface, "architectures*"},
    {Framework::huggingface, "auto_map*"},
    {Framework::huggingface, "use_cache"},
    {Framework::huggingface, "model_type"},
};

}  // namespace

bool is_without_effect(Framework framework, std::string_view path) {
  return std::ranges::any_of(rows, [&](const WithoutEffect& row) {
    return row.framework == framework && glob_match(row.pattern, path);
  });
}

const std::vector<Key>& keys() {
  static const std::vector<Key> all = [] {
    std::vector<Key> keys;
    for (const auto part : {model_keys, router_keys, loss_keys, optimizer_keys, precision_keys,
                            determinism_keys, parallel_keys, data_keys})
      std::ranges::move(part(), std::back_inserter(keys));
    return keys;
  }();
  return all;
}

}  // namespace assay::config
