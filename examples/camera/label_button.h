/* SPDX-License-Identifier: Apache-2.0 */
/* A second button, which the camera demo takes for its second class. */
#ifndef LABEL_BUTTON_H
#define LABEL_BUTTON_H

void label_button_init(void);
int label_button(void); /* 1 while it is pressed; 0 where none is connected */

#endif
