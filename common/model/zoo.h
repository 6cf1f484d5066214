/* zoo.h -- between zoo.c and zoo_nets.c: builders that append the layers of a network to an empty netspec. */
#ifndef GP_ZOO_H
#define GP_ZOO_H

#include "common/model/netspec.h"

/* depth: 18, 34, 50 or 101; for the others 0. */
gp_status gp_zoo_resnet(gp_netspec *spec, int depth, uint32_t classes, gp_error *err);
gp_status gp_zoo_squeezenet(gp_netspec *spec, int depth, uint32_t classes, gp_error *err);
gp_status gp_zoo_mobilenetv2(gp_netspec *spec, int depth, uint32_t classes, gp_error *err);

#endif
