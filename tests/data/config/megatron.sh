#!/bin/bash
# A small mixture of experts on 16 GPUs, as Megatron-LM's examples start one.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NVTE_ALLOW_NONDETERMINISTIC_ALGO=0 NCCL_ALGO=Ring
export CUBLAS_WORKSPACE_CONFIG=:4096:8

MASTER_ADDR=${MASTER_ADDR:-"localhost"}
TP=2
PP=${PP:-2}

DISTRIBUTED_ARGS=(
    --nproc_per_node 8
    --nnodes ${NNODES:-2}
    --master_addr $MASTER_ADDR
)

MODEL_ARGS=(
    --use-mcore-models
    --num-layers 45                      # the first one is dense
    --moe-layer-freq "([0]*1+[1]*44)"
    --hidden-size 2560
    --ffn-hidden-size 7680
    --num-attention-heads 32
    --multi-latent-attention
    --q-lora-rank 1536 --kv-lora-rank 512
    --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128
    --qk-layernorm
    --seq-length 4096
    --max-position-embeddings 4096
    --vocab-size 131072
    --position-embedding-type rope
    --rotary-base 10000
    --normalization RMSNorm
    --norm-epsilon 1e-6
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --init-method-std 0.01
    --attention-dropout 0.0
)

MOE_ARGS="--num-experts 192 --moe-router-topk 4 --moe-ffn-hidden-size 1536 \
    --moe-shared-expert-intermediate-size 1536 \
    --moe-router-score-function sigmoid --moe-router-topk-scaling-factor 2.8 \
    --moe-router-enable-expert-bias --moe-router-bias-update-rate 1e-3 \
    --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-3 \
    --moe-router-dtype fp32 --moe-token-dispatcher-type alltoall --moe-grouped-gemm"

TRAINING_ARGS=(
    --micro-batch-size 1 --global-batch-size 32
    --train-iters 2400000
    --lr 2.0e-4 --lr-decay-style constant --lr-warmup-iters 2000
    --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95
    --clip-grad 1.0
    --bf16
    --fp32-residual-connection
    --mtp-num-layers 1 --mtp-loss-scaling-factor 0.2
    --seed 0
    --split "1, 0, 0"
    --data-path /data/corpus_text_document
    --save /checkpoints/moe --log-interval 1
)

PARALLEL_ARGS=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size $PP
    --sequence-parallel
    --use-distributed-optimizer
)

torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} ${MOE_ARGS} ${TRAINING_ARGS[@]} ${PARALLEL_ARGS[@]} | tee train.log
