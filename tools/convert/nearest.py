"""What to use in place of an aten op that is not supported."""

from __future__ import annotations

from .aten_call import Call

ONE_INPUT = "it must take one; of a pair, as a Siamese network compares, save the branch that both go through"
NO_ACTIVATION = "relu or relu6"
NO_PRELU = "one slope for all channels, one for each, or one for each place of an image"
NO_NORM = "a batch norm right after a convolution or linear layer, or a group norm"
NO_RESIZE = (
    "interpolate with mode='bilinear' or mode='nearest'; a strided convolution or a pooling makes an image "
    "smaller"
)
NO_SLICE = "flatten, view or reshape of the whole tensor, and cuts of channels, rows and columns"
NO_SOFTMAX = (
    "one at its end, which is left out, since the loss on the device applies it to the logits, or one "
    "between two products of tokens: attention of queries, keys and values, in the place of separable "
    "attention"
)
NO_SUM = "a sum or difference of two maps of one shape, or of a map and one constant a channel"
NO_POOLING = "the mean, the sum or the maximum over a whole map"
NO_POWER = f"{NO_POOLING}, a root or a power, or a layer norm, L2 normalisation or softmax by its own name"
NO_ASSIGNMENT = "parts that are computed and put together with torch.cat"
NO_CHANCE = "what does not depend on chance, as of a variational autoencoder its mean, in eval()"
NO_EMBEDDING = (
    "a linear layer, of an input that is numbers: make the embeddings outside the model, where the tokens are"
)
NO_QUOTIENT = "a map divided by a constant, or times a gate"
NO_PRODUCT = (
    "a map times one factor a channel [n, c, 1, 1] or a pixel [n, 1, h, w], or times a map of its shape"
)
NO_MATRIX = "a linear layer: the activation first, then one matrix of constants"
NO_LENGTH = "the embedding as it is, without L2 normalisation, in front of the last layer; or a layer norm"
NO_VARIABLE = (
    "weights that are constants of the file: convert with TFLiteConverter.from_keras_model(), or freeze the "
    "function before"
)
NO_BATCH = (
    "a convolution with its dilation in itself, which TFLite's converter writes for a batch of one: "
    "keras.Input(shape, batch_size=1)"
)
NO_LOOP = "GRU and LSTM as operators of their own, as PyTorch writes them into an ONNX file, or Keras' loops"
NO_MASK = "a network without a mask (Masking, mask_zero=True), of samples of one length"
NO_CONDITION = (
    "layers that run whatever the input is: PyTorch's older exporter writes one around squeeze(), which "
    "torch.onnx.export(dynamo=True) and torch.export do not"
)
NO_TILE = "rows or columns that stand several times side by side (UpSampling2D), or a resize"
NO_COMPARISON = "an activation by its own name (PReLU, SELU), in a file without run_decompositions()"
NO_FUSION = "take the model as it was exported, in ONNX's own operators, before a runtime optimised it"
NO_FUNCTION = (
    "it is a function of the file's own: onnx.inliner.inline_local_functions(model) writes its nodes in its "
    "place"
)
NO_SELECTION = (
    "the nearest that is: MLPClassifier and MLPRegressor behind scalers and PCA; choose and make features "
    "outside the model"
)
SUPPORTED = (
    "conv2d, batch norm, relu and other activations of one value, add, mul, cat, mean, average and max "
    "pooling, flatten, linear, layer_norm, attention, gru, lstm, dropout"
)

ACTIVATIONS = ("prelu", "thresholdedrelu", "rrelu")
NORMS = ("native_layer_norm", "native_group_norm")
SOME_NORMS = ("layer_norm", "group_norm", "instance_norm")  # which are supported in some forms
KEEPS_SHAPE = frozenset((*ACTIVATIONS, *NORMS, *SOME_NORMS, "hardtanh", "clamp", "neg"))

NEAREST: dict[str, str] = {
    **dict.fromkeys(ACTIVATIONS, NO_ACTIVATION),
    "prelu": NO_PRELU,
    **dict.fromkeys(NORMS, NO_NORM),
    "local_response_normalization": "in ONNX and PyTorch the same norm (LRN), or a batch norm",
    "mul": NO_PRODUCT,
    **dict.fromkeys(("matmul", "mm", "bmm"), NO_MATRIX),
    **dict.fromkeys(("sub", "rsub"), NO_SUM),
    **dict.fromkeys(("div", "true_divide"), NO_QUOTIENT),
    **dict.fromkeys(("select", "permute", "transpose", "t"), NO_SLICE),
    **dict.fromkeys(("_upsample_bilinear2d_aa", "upsample_bicubic2d"), NO_RESIZE),
    **dict.fromkeys(("resize", "resize_bilinear", "resize_nearest_neighbor"), NO_RESIZE),
    **dict.fromkeys(("fill", "copy", "index_put", "masked_fill", "scatternd"), NO_ASSIGNMENT),
    **dict.fromkeys(("randn", "randn_like", "rand_like", "bernoulli", "normal"), NO_CHANCE),
    "conv3d": "conv2d",
    **dict.fromkeys(("conv_transpose3d", "conv3dtranspose", "conv_3d_transpose"), "conv_transpose2d"),
    **dict.fromkeys(("prod", "expand", "expand_as", "broadcast_to"), NO_PRODUCT),
    **dict.fromkeys(("sum", "min", "argmax", "reducesum", "lppool"), NO_POOLING),
    **dict.fromkeys(("reducemin", "reducel1", "reduceprod", "reducesumsquare"), NO_POOLING),
    **dict.fromkeys(("reducel2", "logsumexp", "rsqrt", "reciprocal"), NO_POWER),
    **dict.fromkeys(("cummax", "cumsum"), "the sum or the product of two maps, or cat"),
    **dict.fromkeys(("var_handle", "read_variable"), NO_VARIABLE),
    **dict.fromkeys(("space_to_batch_nd", "batch_to_space_nd"), NO_BATCH),
    "scan": NO_LOOP,
    "equal": NO_MASK,
    "if": NO_CONDITION,
    "tile": NO_TILE,
    "erfc": "gelu with approximate=True",
    "swish": "Sigmoid and Mul",
    "diff": "x[..., 1:] - x[..., :-1]",
    **dict.fromkeys(("embedding", "embedding_bag"), NO_EMBEDDING),
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne", "where"), NO_COMPARISON),
    **dict.fromkeys(("greater", "greater_equal", "less", "less_equal", "select_v2"), NO_COMPARISON),
    "wrap_with_autocast": "the same forward() without torch.autocast",
    "im2col": "a convolution, or unfold() of windows that lie side by side",
    "_transformer_encoder_layer_fwd": "the same model, saved with torch.export",
    "pad": "zeros, or pixels of the image, mode='reflect', 'replicate' or 'circular'",
    **dict.fromkeys(
        ("rnn_relu", "rnn_tanh_cell", "gru_cell", "lstm_cell"), "nn.GRU, nn.LSTM and nn.RNN as they are"
    ),
    "unidirectional_sequence_rnn": "GRU and LSTM in files of PyTorch and ONNX, or as Keras has them",
}


def no_matrix(call: Call, both: bool) -> Exception:
    """What is refused of a matrix product. both: of two activations, not of one and a constant"""
    what = "a product of two activations" if both else "a product of a constant and an activation"
    return call.error(f"{what} is not supported; the nearest that is: {NO_MATRIX}, or attention")


def unsupported(call: Call) -> Exception:
    op = call.op.rstrip("_") or call.op
    return call.error(f"the op {op} is not supported; the nearest that is: {NEAREST.get(op, SUPPORTED)}")
