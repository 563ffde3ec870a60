// The device learns what its sensor sees: hold the button of a class while it looks.
#include <{{model}}.h>

static struct microtrain device;
static uint64_t arena[{{MODEL}}_ARENA_BYTES / 8 + 1], learned[{{MODEL}}_TRAINABLE_BYTES / 8 + 1];
static uint8_t input[{{MODEL}}_INPUT_BYTES];

const int BUTTONS[] = {2, 3};  // pins: class 0, class 1

void setup() {
  Serial.begin(115200);
  for (int pin : BUTTONS) pinMode(pin, INPUT_PULLUP);
  struct microtrain_memory memory = {arena, sizeof arena, learned, sizeof learned};
  Serial.println(microtrain_text(microtrain_init(&device, &{{model}}, &memory)));
}

void loop() {
  for (size_t i = 0; i < sizeof input; i++) input[i] = analogRead(A0) >> 2;  // your sensor: values 0..255
  microtrain_feed(&device, input);
  for (uint32_t label = 0; label < 2; label++) {
    if (digitalRead(BUTTONS[label]) == LOW) {
      float loss;
      if (microtrain_train(&device, label, &loss) == MICROTRAIN_OK) Serial.println(loss);
      return;
    }
  }
  uint32_t label;
  if (microtrain_predict(&device, NULL, &label) == MICROTRAIN_OK) Serial.println(label);
}
