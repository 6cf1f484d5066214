/* Checks of the values of settings.def. GP_EINVAL: the value does not have the required form; the
 * message completes "NAME = VALUE: ". */
#ifndef GP_CLUSTER_PROFILE_CHECK_H
#define GP_CLUSTER_PROFILE_CHECK_H

#include "common/base/error.h"

gp_status profile_check_path(const char *value, gp_error *err);    /* absolute path */
gp_status profile_check_file(const char *value, gp_error *err);    /* any path */
gp_status profile_check_program(const char *value, gp_error *err); /* name or absolute path */
gp_status profile_check_token(const char *value, gp_error *err);   /* no blanks, no '-' at the start */
gp_status profile_check_memory(const char *value, gp_error *err);
gp_status profile_check_time(const char *value, gp_error *err);

gp_status profile_check_slurm_name(const char *value, gp_error *err);
gp_status profile_check_slurm_option(const char *value, gp_error *err);

gp_status profile_check_hosts(const char *value, gp_error *err);
gp_status profile_check_user(const char *value, gp_error *err);

gp_status profile_check_dns_name(const char *value, gp_error *err); /* RFC 1123 label */
gp_status profile_check_volume(const char *value, gp_error *err);
gp_status profile_check_labels(const char *value, gp_error *err);

/* Command lines with the placeholders of the command engine. */
gp_status profile_check_launch(const char *value, gp_error *err);
gp_status profile_check_status(const char *value, gp_error *err);
gp_status profile_check_cancel(const char *value, gp_error *err);

#endif
