// Faults of gradient clipping and of the norm behind it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "optimizer_fault.h"

namespace assay::optimizer_clip_test {
namespace {

using Optimizer = OptimizerUnderTest;

// min(1, 1 / (norm + 1e-6)) of a norm that is made of squares.
std::function<double(const std::string&, const std::map<std::string, double>&)> clip_by(
    const std::function<double(const std::string&, const std::map<std::string, double>&)>& square) {
  return [=](const std::string& name, const std::map<std::string, double>& squares) {
    return std::min(1., 1 / (std::sqrt(square(name, squares)) + 1e-6));
  };
}

TEST(OptimizerClip, NoClipping) {
  expect_named({"no clip",
                with([](Optimizer& o) { o.max_norm = HUGE_VAL; }),
                Cause::clip,
                {"gradients are multiplied by 1, not by 0.", "they are not clipped; all 10"}});
}

TEST(OptimizerClip, AnotherMaxNorm) {
  expect_named({"max_norm",
                with([](Optimizer& o) { o.max_norm = 0.5; }),
                Cause::clip,
                {"max_norm is 0.5, the reference's 1; all 10"}});
}

TEST(OptimizerClip, ClippedThoughBelow) {
  expect_named({"scaled up",
                with([](Optimizer& o) {
                  o.clip = [](const std::string&, const auto& squares) {
                    return 1 / (std::sqrt(total(squares)) + 1e-6);
                  };
                }),
                Cause::clip,
                {"max_norm 1 / norm", "though the norm is below it; all 10"},
                {},
                0.01});
}

TEST(OptimizerClip, NormCountedTwice) {
  expect_named({"sqrt(2)",
                with([](Optimizer& o) {
                  o.clip =
                      clip_by([](const std::string&, const auto& squares) { return 2 * total(squares); });
                }),
                Cause::clip,
                {"sqrt(2) times the norm: every gradient is counted 2 times"}});
}

TEST(OptimizerClip, ExpertsCountedTwiceInTheNorm) {
  expect_named({"experts twice",
                with([](Optimizer& o) {
                  o.clip = clip_by([](const std::string&, const auto& squares) {
                    double sum = total(squares);
                    for (const auto& [name, square] : squares) sum += is_expert(name) ? square : 0;
                    return sum;
                  });
                }),
                Cause::clip,
                {"model.layers.1.mlp.experts.*.up_proj.weight counted 2 times"}});
}

TEST(OptimizerClip, VectorsMissingInTheNorm) {
  expect_named({"without vectors",
                with([](Optimizer& o) {
                  o.clip = clip_by([](const std::string&, const auto& squares) {
                    double sum = 0;
                    for (const auto& [name, square] : squares)
                      sum += parameters_under_test().at(name).size() > 1 ? square : 0;
                    return sum;
                  });
                }),
                Cause::clip,
                {"without the 1-D parameters"}});
}

TEST(OptimizerClip, EmbeddingCountedTwiceInTheRecordedNorm) {
  expect_named({"norm",
                with([](Optimizer& o) {
                  o.norm = [](double norm, const auto& squares) {
                    return std::sqrt(norm * norm + squares.at("model.embed_tokens"));
                  };
                }),
                Cause::norm,
                {"that of the recorded gradients", "model.embed_tokens.weight counted 2 times"}});
}

TEST(OptimizerClip, GroupsClippedByTheirOwnNorms) {
  expect_named({"own norms",
                with([](Optimizer& o) {
                  o.clip = clip_by([](const std::string& own, const auto& squares) {
                    double sum = 0;
                    for (const auto& [name, square] : squares)
                      sum += is_expert(name) == is_expert(own) ? square : 0;
                    return sum;
                  });
                }),
                Cause::clip,
                {"clipped by the norms of groups, not by that of all"}});
}

// Those below the limit are not clipped at all: together they would be above it.
TEST(OptimizerClip, ParametersClippedOneByOne) {
  expect_named({"one by one",
                with([](Optimizer& o) {
                  o.clip =
                      clip_by([](const std::string& own, const auto& squares) { return squares.at(own); });
                }),
                Cause::clip,
                {"clipped by the norms of groups (each parameter is one), not by that of all"}},
               {1});
}

// Each side clips by the norm of all of its gradients, whichever tensors are asked for.
TEST(OptimizerClip, OneParameterAloneIsClippedByTheNormOfAll) {
  for (const Recipe recipe : recipes) {
    MemoryDump actual{"actual"}, reference{"reference"};
    record_steps(actual, {}, recipe, 3, 1.2);
    record_steps(reference, {}, recipe, 3, 1);
    DiffOptions options;
    options.policies.push_back(load_policy("telechat3"));
    options.only = "model.layers.1.*";
    const Report report = diff(actual, reference, options);
    ASSERT_FALSE(report.findings.empty());
    for (const Finding& f : report.findings)
      EXPECT_FALSE(f.verdict == Verdict::failed && f.id.phase == Phase::optimizer)
          << static_cast<int>(recipe) << " " << f.name << ": " << (f.origin ? f.origin->reason : f.reason);
  }
}

}  // namespace
}  // namespace assay::optimizer_clip_test
