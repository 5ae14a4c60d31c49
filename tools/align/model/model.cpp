#include "assay/align/model/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <type_traits>

#include "assay/align/model/builtin_models.h"
#include "assay/align/model/huggingface_config.h"
#include "assay/align/model/model_fields.h"
#include "assay/align/model/model_toml.h"
#include "assay/dumps/io/file.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

void expect(bool right, std::string_view where, std::string_view key, std::int64_t found,
            std::string_view expected) {
  if (!right) throw Error("{}: '{}' is {}; expected {}", where, key, found, expected);
}

void check_attention(const Model::Attention& a, std::string_view where) {
  const bool mla = a.kind == AttentionKind::mla;
  const auto of = [&](bool this_kind, std::string_view key, std::int64_t found, std::int64_t least) {
    if (this_kind)
      expect(found >= least, where, key, found, fmt::format("at least {}", least));
    else
      expect(found == 0, where, key, found, fmt::format("none: attention.kind is {}", mla ? "mla" : "gqa"));
  };
  of(!mla, "attention.kv_heads", a.kv_heads, 1);
  of(!mla, "attention.head_dim", a.head_dim, 2);
  of(!mla, "attention.qk_norm", a.qk_norm ? 1 : 0, 0);
  of(mla, "attention.q_rank", a.q_rank, 0);
  of(mla, "attention.kv_rank", a.kv_rank, 1);
  of(mla, "attention.nope_dim", a.nope_dim, 1);
  of(mla, "attention.rope_dim", a.rope_dim, 2);
  of(mla, "attention.value_dim", a.value_dim, 1);
  const std::int64_t turned = mla ? a.rope_dim : a.head_dim;
  expect(turned % 2 == 0, where, mla ? "attention.rope_dim" : "attention.head_dim", turned,
         "an even number: RoPE rotates pairs");
  expect(mla || a.heads % a.kv_heads == 0, where, "attention.kv_heads", a.kv_heads,
         fmt::format("a divisor of the {} heads", a.heads));
}

void check_moe(const Model& m, std::string_view where) {
  const Model::Moe& moe = m.moe;
  expect(moe.top_k >= 1 && moe.top_k <= moe.experts, where, "moe.top_k", moe.top_k,
         fmt::format("1 to the {} experts", moe.experts));
  expect(moe.ffn > 0, where, "moe.ffn", moe.ffn, "at least 1");
  if (moe.pad_to_capacity && moe.capacity_factor <= 0)
    throw Error("{}: 'moe.pad_to_capacity' is true; expected a moe.capacity_factor above 0 with it", where);
  if (moe.groups == 0) return;
  expect(moe.experts % moe.groups == 0 && moe.experts / moe.groups >= 2, where, "moe.groups", moe.groups,
         fmt::format("groups of equally many of the {} experts, at least two", moe.experts));
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
  for_each_field(m, [&](const Field& field, const auto& member) {
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(member)>>) {
      const auto value = static_cast<double>(member);
      if (!(value >= field.low && value <= field.high))
        throw Error("{}: '{}' is {}; expected {} to {}", where, full_key(field), member, field.low,
                    field.high);
    }
  });
  expect(m.dense_layers <= m.layers, where, "dense_layers", m.dense_layers,
         fmt::format("no more than the {} layers", m.layers));
  const bool dense = m.moe.experts == 0 || m.dense_layers > 0;
  expect(!dense || m.dense_ffn > 0, where, "dense_ffn", m.dense_ffn, "at least 1: there are dense layers");
  if (!(m.rope.beta_slow < m.rope.beta_fast))
    throw Error("{}: 'rope.beta_slow' is {}; expected less than beta_fast, {}", where, m.rope.beta_slow,
                m.rope.beta_fast);
  check_attention(m.attention, where);
  if (m.moe.experts > 0) check_moe(m, where);
}

namespace {

Model load_unchanged(const std::string& name_or_file) {
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
  return model;
}

}  // namespace

Model load_model(const std::string& name) {
  // A file's name may have a comma.
  std::size_t comma = name.find(',');
  for (const std::string_view ending : {".toml", ".json"}) {
    const std::size_t at = name.find(fmt::format("{},", ending));
    if (name.ends_with(ending)) comma = std::string::npos;
    if (at != std::string::npos) comma = at + ending.size();
  }
  Model model = load_unchanged(name.substr(0, comma));
  if (comma != std::string::npos) model = changed(model, name.substr(comma + 1), name);
  check_model(model, name);
  return model;
}

}  // namespace assay::align
