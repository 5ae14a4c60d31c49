// Settings that are text: --parallel and --optimizer.
#include <gtest/gtest.h>

#include "assay/align/settings/optimizer_settings.h"
#include "assay/align/settings/parallel.h"
#include "assay/align/settings/strategy.h"
#include "assay/golden/error.h"

namespace assay::align::settings_test {
namespace {

template <class F>
std::string error_of(F&& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "none";
}

TEST(ParallelText, SaysOnlyWhatHasNotItsDefault) {
  EXPECT_EQ(to_string(parse_parallel("")), "");
  EXPECT_EQ(to_string(parse_parallel("dp=1,sp=0,reduce=ranks")), "");
  const std::string all =
      "tp=2,sp=1,cp=3,context=ulysses,dp=4,zero=2,pp=2,vpp=2,schedule=interleaved,stages=1+2+0+1,ep=2,"
      "dispatch=hierarchical,node=2,etp=2,recompute=mla,swap=1,reduce=tree";
  EXPECT_EQ(to_string(parse_parallel(all)), all);
}

TEST(ParallelText, ErrorsSayWhatIsExpected) {
  const auto error = [](const char* text) { return error_of([=] { parse_parallel(text); }); };
  EXPECT_EQ(error("tp"), "--parallel: 'tp' has no value; expected KEY=VALUE");
  EXPECT_EQ(error("tp=0"), "--parallel: tp is '0'; expected a number from 1 to 4096");
  EXPECT_EQ(error("sp=yes"), "--parallel: sp is 'yes'; expected a number from 0 to 1");
  EXPECT_EQ(error("reduce=star"), "--parallel: reduce is 'star'; expected ranks, ring, tree");
  EXPECT_EQ(error("stages=1+x"),
            "--parallel: stages is '1+x'; expected layers of each stage, as in 3+2, each a number from 0 to "
            "4096");
  EXPECT_TRUE(error("world=2").starts_with("--parallel: there is no key 'world'; expected tp, sp, cp,"));
}

TEST(Strategies, ARowIsReadByAll) {
  const Parallel p = parse_parallel("tp=2,sp=1,dp=2,swap=1,recompute=mla,pp=2,vpp=2,schedule=interleaved");
  EXPECT_TRUE(is_on("swap", p));
  EXPECT_TRUE(is_on("schedule", parse_parallel("vpp=2")));
  EXPECT_FALSE(is_on("cp", parse_parallel("context=ulysses")));
  EXPECT_EQ(lacking(p, parse_parallel("tp=2,recompute=full")),
            (std::vector<std::string_view>{"sp=1", "dp > 1", "pp > 1", "vpp > 1"}));
  EXPECT_EQ(lacking(parse_parallel("cp=2"), parse_parallel("cp=2,context=ulysses")),
            std::vector<std::string_view>{"its context"});
  EXPECT_EQ(error_of([] { check_needs(parse_parallel("placement=dynamic")); }),
            "placement=dynamic needs ep > 1");
  EXPECT_EQ(error_of([] { check_needs(parse_parallel("zero=1,tp=2")); }), "zero needs dp or cp > 1");
  EXPECT_EQ(error_of([] { check_needs(parse_parallel("schedule=zero-bubble")); }), "none");
  EXPECT_EQ(error_of([] { check_needs(parse_parallel("zero=1,cp=2")); }), "none");
}

TEST(OptimizerText, ANameStandsForItsFrameworksRules) {
  EXPECT_EQ(parse_optimizer("adamw"), OptimizerSettings());
  const OptimizerSettings mindspore = parse_optimizer("mindspore-adamw");
  EXPECT_EQ(mindspore.eps, 1e-6);
  EXPECT_EQ(mindspore.clip, ClipRule::mindformers);
  EXPECT_EQ(mindspore.beta2, 0.999);
  EXPECT_EQ(mindspore.weight_decay, 0);
  EXPECT_EQ(parse_optimizer("torch-adamw").decay, DecayRule::all);
  EXPECT_EQ(parse_optimizer("muon").matrix, MuonMatrix::whole);
}

TEST(OptimizerText, SaysOnlyWhatTheNameDoesNot) {
  for (const char* const text :
       {"adamw", "adam-l2,lr=0.01", "torch-adamw,decay=matrices", "torch-adam,weight_decay=0.1",
        "mindspore-adamw,eps=1e-08", "eps-hat,beta1=0.5,beta2=0.75,clip=none",
        "muon,max_norm=0.3,momentum=0.1,matrix=blockwise,muon_routers=0"})
    EXPECT_EQ(to_string(parse_optimizer(text)), text);
  EXPECT_EQ(to_string(parse_optimizer("torch-adamw,decay=all,lr=1e-3")), "torch-adamw");
}

TEST(OptimizerText, ErrorsSayWhatIsExpected) {
  const auto error = [](const char* text) { return error_of([=] { parse_optimizer(text); }); };
  EXPECT_EQ(error("sgd"),
            "--optimizer: begins with 'sgd'; expected adamw, adam-l2, torch-adamw, torch-adam, "
            "mindspore-adamw, eps-hat, muon");
  EXPECT_TRUE(error("").starts_with("--optimizer: is empty; expected adamw,"));
  EXPECT_EQ(error("adamw,decay=some"), "--optimizer: decay is 'some'; expected matrices, all, no-beta-gamma");
  EXPECT_TRUE(error("adamw,lr=nan").starts_with("--optimizer: lr is 'nan'; expected a number from 0 to "));
  EXPECT_TRUE(error("adamw,beta1=1").starts_with("--optimizer: beta1 is '1'; expected a number from 0 to "));
}

TEST(OptimizerRules, WhatDecays) {
  const auto decays_by = [](const char* text, const char* parameter, const Shape& shape) {
    return decays(parse_optimizer(text), parameter, shape);
  };
  EXPECT_FALSE(decays_by("adamw", "model.norm.weight", {8}));
  EXPECT_TRUE(decays_by("adamw", "model.layers.1.mlp.shared_expert_gate.weight", {1, 8}));
  EXPECT_TRUE(decays_by("torch-adamw", "model.norm.weight", {8}));
  EXPECT_TRUE(decays_by("mindspore-adamw", "model.norm.weight", {8}));
  EXPECT_FALSE(decays_by("mindspore-adamw", "model.norm.gamma", {8}));
  EXPECT_FALSE(decays_by("mindspore-adamw", "model.norm.beta", {8}));
}

TEST(OptimizerRules, ClippingBringsTheNormToItsLimit) {
  EXPECT_EQ(clip_coefficient(parse_optimizer("adamw"), 0.5), 1);
  EXPECT_EQ(clip_coefficient(parse_optimizer("adamw"), 4), 1 / 4.000001);
  EXPECT_EQ(clip_coefficient(parse_optimizer("adamw,max_norm=2"), 4), 2 / 4.000001);
  EXPECT_EQ(clip_coefficient(parse_optimizer("adamw,clip=mindformers"), 4), 0.25);
  EXPECT_EQ(clip_coefficient(parse_optimizer("adamw,clip=mindformers"), 0), 1);
  EXPECT_EQ(clip_coefficient(parse_optimizer("adamw,clip=none"), 4), 1);
  EXPECT_EQ(clip_coefficient(parse_optimizer("adamw,max_norm=0"), 4), 1);
}

}  // namespace
}  // namespace assay::align::settings_test
