/* Arithmetic of the lanes segment, compiled once per instruction set.
 *
 * worker/backend/CMakeLists.txt builds three objects from this file. GP_LANES_ISA names the
 * instruction set, and compiler flags enable it. All functions are static and inlined, so that the
 * linker cannot use code from one object in another. */
#include "worker/backend/cpu/lanes/lanes.h"

#include "worker/backend/cpu/lanes/lanes_dense.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define TEXT_(a)     #a
#define TEXT(a)      TEXT_(a)

const lanes_isa PASTE(gp_lanes_isa_, GP_LANES_ISA) = {
    .name = TEXT(GP_LANES_ISA),
    .lanes = LANES,
    .data_columns = DATA_COLUMNS,
    .weights_outputs = { [1] = WEIGHTS_OUTPUTS_1, [3] = WEIGHTS_OUTPUTS_3, [5] = WEIGHTS_OUTPUTS_5,
                         [7] = WEIGHTS_OUTPUTS_7 },
    .panel_inputs = PANEL_INPUTS,
    .panel_outputs = PANEL_OUTPUTS,
    .step = {
        [LANES_LOAD_SAMPLES] = step_load_samples,
        [LANES_LOAD] = step_load,
        [LANES_STORE] = step_store,
        [LANES_BORDER] = step_border,
        [LANES_CONV] = step_conv_any,
        [LANES_CONV_FAST] = step_conv,
        [LANES_CONV_POOL] = step_conv_pool,
        [LANES_CONV_DATA] = step_conv_data_any,
        [LANES_CONV_DATA_FAST] = step_conv_data,
        [LANES_CONV_WEIGHTS] = step_conv_weights_any,
        [LANES_CONV_WEIGHTS_FAST] = step_conv_weights,
        [LANES_CONV_WEIGHTS_POOL] = step_conv_weights_pool,
        [LANES_WINOGRAD] = step_winograd_forward,
        [LANES_WINOGRAD_DATA] = step_winograd_data,
        [LANES_WINOGRAD_WEIGHTS] = step_winograd_weights,
        [LANES_UNPOOL] = step_unpool,
        [LANES_FC] = step_fc,
        [LANES_FC_WEIGHTS] = step_fc_weights,
        [LANES_RELU] = step_relu,
        [LANES_RELU_BACKWARD] = step_relu_backward,
        [LANES_POOL] = step_pool,
        [LANES_POOL_BACKWARD] = step_pool_backward,
        [LANES_DROPOUT] = step_dropout,
        [LANES_SOFTMAX_XENT] = step_softmax_xent,
        [LANES_CUSTOM_LOSS] = step_custom_loss,
        [LANES_ADD] = step_add,
    },
    .pack = pack_weights,
    .finish = finish_gradients,
};
