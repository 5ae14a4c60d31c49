// Files that are damaged: an Error, or another configuration, never a crash.
#include <gtest/gtest.h>

#include <random>

#include "assay/golden/error.h"
#include "given.h"

namespace assay::config::hostile_test {
namespace {

std::string text_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Bytes changed, taken out, doubled and put in from elsewhere.
std::string damaged(std::string text, std::mt19937& random) {
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  for (std::size_t k = 0; k <= below(4) && text.size() > 8; ++k) {
    const std::size_t at = below(text.size()),
                      length = below(std::min<std::size_t>(40, text.size() - at)) + 1;
    switch (below(5)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      case 3:
        text[at] = "{}[]()\"'$\\&*:,#-=\n"[below(18)];
        break;
      default:
        text.resize(at + 1);
    }
  }
  return text;
}

TEST(DamagedFiles, AreAnErrorOrAnotherConfiguration) {
  std::mt19937 random(20261129);
  const Scratch folder;
  for (const char* name :
       {"megatron.sh", "mindformers.yaml", "config.json", "torchtitan.toml", "deepspeed.json", "printed.log",
        "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json", "tokenizer_other/vocab.json"}) {
    const std::string whole = text_of(sample(name));
    const Side right = open_side(sample(name));
    int errors = 0, read = 0;
    for (int k = 0; k < 300; ++k) {
      const std::string file = folder.write(name, damaged(whole, random));
      try {
        const Comparison c = compare(open_side(file), right);
        to_text(c, true);
        to_json(c);
        ++read;
      } catch (const Error& e) {
        ++errors;
        EXPECT_NE(std::string_view(e.what()).find(std::filesystem::path(name).filename().string()),
                  std::string::npos)
            << e.what();
      }
    }
    EXPECT_GT(errors + read, 299) << name;
    EXPECT_GT(errors, 0) << name;
    EXPECT_GT(read, 0) << name;
  }
}

}  // namespace
}  // namespace assay::config::hostile_test
