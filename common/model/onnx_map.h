/* onnx_map.h -- what onnx_map.c and onnx_layers.c, which has the operators of one layer each, share. */
#ifndef GP_ONNX_MAP_H
#define GP_ONNX_MAP_H

#include "common/model/onnx_node.h"

/* The layer of a node; the node's first output is the layer's. */
gp_status gp_onnx_node_layer(gp_onnx_mapping *m, const Onnx__NodeProto *node, const char *kind,
                             const char *settings, gp_onnx_value *const *inputs, size_t input_count,
                             gp_error *err);

/* The shape of one sample of a layer's output or of the network's input. */
gp_shape gp_onnx_shape_of(const gp_onnx_mapping *m, const gp_onnx_value *value);

/* One function per operator, in the table of onnx_map.c. */
gp_status gp_onnx_map_batchnorm(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_status gp_onnx_map_global_pool(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_status gp_onnx_map_clip(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_status gp_onnx_map_leaky_relu(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_status gp_onnx_map_scale(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_value *x,
                            const Onnx__TensorProto *factor, gp_error *err);
gp_status gp_onnx_map_lrn(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_status gp_onnx_map_groupnorm(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_status gp_onnx_map_layernorm(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_status gp_onnx_map_conv_transpose(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_status gp_onnx_map_resize(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_status gp_onnx_map_concat(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_status gp_onnx_map_slice(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_status gp_onnx_map_pad(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_status gp_onnx_map_reshape(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_status gp_onnx_map_transpose(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_status gp_onnx_map_function(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);

#endif
