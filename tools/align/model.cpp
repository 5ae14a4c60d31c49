#include "assay/align/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "assay/align/builtin_models.h"
#include "assay/align/huggingface_config.h"
#include "assay/align/model_toml.h"
#include "assay/dumps/file.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

void expect(bool right, std::string_view where, std::string_view key, std::int64_t found,
            std::string_view expected) {
  if (!right) throw Error("{}: '{}' is {}; expected {}", where, key, found, expected);
}

void check_attention(const Model::Attention& a, std::string_view where) {
  if (a.kind == AttentionKind::gqa) {
    expect(a.head_dim > 0 && a.head_dim % 2 == 0, where, "attention.head_dim", a.head_dim,
           "an even number: RoPE rotates pairs");
    expect(a.kv_heads > 0 && a.heads % a.kv_heads == 0, where, "attention.kv_heads", a.kv_heads,
           fmt::format("a divisor of the {} heads", a.heads));
    return;
  }
  expect(a.kv_rank > 0, where, "attention.kv_rank", a.kv_rank, "at least 1");
  expect(a.value_dim > 0, where, "attention.value_dim", a.value_dim, "at least 1");
  expect(a.rope_dim > 0 && a.rope_dim % 2 == 0, where, "attention.rope_dim", a.rope_dim,
         "an even number: RoPE rotates pairs");
}

void check_moe(const Model& m, std::string_view where) {
  const Model::Moe& moe = m.moe;
  expect(moe.top_k >= 1 && moe.top_k <= moe.experts, where, "moe.top_k", moe.top_k,
         fmt::format("1 to the {} experts", moe.experts));
  expect(moe.ffn > 0, where, "moe.ffn", moe.ffn, "at least 1");
  if (moe.groups == 0) return;
  expect(moe.experts % moe.groups == 0, where, "moe.groups", moe.groups,
         fmt::format("a divisor of the {} experts", moe.experts));
  expect(moe.top_groups >= 1 && moe.top_groups <= moe.groups, where, "moe.top_groups", moe.top_groups,
         fmt::format("1 to the {} groups", moe.groups));
  expect(moe.top_groups * (moe.experts / moe.groups) >= moe.top_k, where, "moe.top_groups", moe.top_groups,
         fmt::format("groups with at least the {} experts of a token", moe.top_k));
}

}  // namespace

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names;
  for (const BuiltinModel& m : builtin_models) names.push_back(m.name);
  return names;
}

void check_model(const Model& m, std::string_view where) {
  expect(m.layers >= 1, where, "layers", m.layers, "at least 1");
  expect(m.hidden >= 1, where, "hidden", m.hidden, "at least 1");
  expect(m.vocabulary >= 2, where, "vocabulary", m.vocabulary, "at least 2");
  expect(m.attention.heads >= 1, where, "attention.heads", m.attention.heads, "at least 1");
  expect(m.dense_layers <= m.layers, where, "dense_layers", m.dense_layers,
         fmt::format("no more than the {} layers", m.layers));
  const bool dense = m.moe.experts == 0 || m.dense_layers > 0;
  expect(!dense || m.dense_ffn > 0, where, "dense_ffn", m.dense_ffn, "at least 1: there are dense layers");
  check_attention(m.attention, where);
  if (m.moe.experts > 0) check_moe(m, where);
}

Model load_model(const std::string& name_or_file) {
  const auto builtin = std::ranges::find(builtin_models, name_or_file, &BuiltinModel::name);
  const bool is_builtin = builtin != std::end(builtin_models), is_json = name_or_file.ends_with(".json"),
             is_toml = name_or_file.ends_with(".toml");
  if (!is_builtin && !is_json && !is_toml)
    throw Error("'{}' is no model; expected one of {}, a .toml file, or a config.json of Hugging Face",
                name_or_file, fmt::join(model_names(), ", "));
  Model model;
  if (is_builtin) {
    model = model_from_toml(builtin->text, name_or_file);
  } else {
    const auto file = MappedFile::open(name_or_file);
    model = is_json ? model_from_huggingface(file->text(), name_or_file)
                    : model_from_toml(file->text(), name_or_file);
  }
  if (model.name.empty())
    model.name = is_builtin ? name_or_file : std::filesystem::path(name_or_file).stem().string();
  check_model(model, name_or_file);
  return model;
}

}  // namespace assay
