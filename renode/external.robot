*** Comments ***
Weights beside the chip, in the flash on QUADSPI (docs/hardware.md), on Renode and on the board model: firmware that was
converted with --external-flash qspi. Frequencies are computed from the registers and the crystal. The suite knows no model.

*** Settings ***
Resource                keywords.resource

*** Variables ***
${QUADSPI_CR}           0xA0001000
${QUADSPI_DCR}          0xA0001004
${QUADSPI_CCR}          0xA0001014
# Bits of GPIO_OSPEEDR of PB2 and PB6, PD11 to PD13, PE2
&{FASTEST}              0x40020408=${0x3030}    0x40020C08=${0xFC00000}    0x40021008=${0x30}
${MPU_CTRL}             0xE000ED94
${MPU_RNR}              0xE000ED98
${MPU_RBAR}             0xE000ED9C
${MPU_RASR}             0xE000EDA0
${WEIGHTS}              0x90000000
${SIZE_LOG2}            24
${DUMMY_CYCLES}         10
${MAX_HZ}               108000000

*** Keywords ***
Register
    [Arguments]                 ${address}
    ${text}=                    Execute Command    sysbus ReadDoubleWord ${address}
    ${value}=                   Evaluate    int($text, 16)
    RETURN                      ${value}

Region
    [Documentation]    Start of a region, log2 of its bytes, whether it is on, whom it lets read and write (AP), whether
    ...                none may run it, and TEX, S, C and B: how it is cached.
    [Arguments]                 ${number}
    Execute Command             sysbus WriteDoubleWord ${MPU_RNR} ${number}
    ${attributes}=              Register    ${MPU_RASR}
    ${start}=                   Register    ${MPU_RBAR}
    ${found}=                   Evaluate    (${start} & ~31, (${attributes} >> 1 & 31) + 1, *(${attributes} >> n & m for n, m in ((0, 1), (24, 7), (28, 1), (16, 63))))
    RETURN                      ${found}

Logits
    Ask                         pattern 7    ^ok pattern$
    ${found}=                   Ask    infer    ^logits(( [0-9a-f]{8})+)$
    RETURN                      ${found.Groups[0]}

Another Byte
    [Documentation]    Changes the byte at an offset of the weights.
    [Arguments]                 ${offset}
    ${address}=                 Evaluate    hex(${WEIGHTS} + ${offset})
    ${text}=                    Execute Command    sysbus ReadByte ${address}
    ${value}=                   Evaluate    int($text, 16) ^ 4
    Execute Command             sysbus WriteByte ${address} ${value}

*** Test Cases ***
The Window Is Set Up As The Flash Is Read
    [Documentation]    0xEB: 24 bits of address and data on four lines, as fast as it can be, sampled half a cycle later.
    Boot
    ${control}=                 Register    ${QUADSPI_CR}
    ${device}=                  Register    ${QUADSPI_DCR}
    ${command}=                 Register    ${QUADSPI_CCR}
    Should Be True              ${control} & 1 and ${CORE_HZ} / ((${control} >> 24) + 1) == ${MAX_HZ}
    Should Be True              ${control} >> 4 & 1
    Should Be True              (${device} >> 16 & 31) + 1 == ${SIZE_LOG2}
    Should Be True              ${command} & 0xff == 0xeb and ${command} >> 26 & 3 == 3
    Should Be True              ${command} >> 18 & 31 == ${DUMMY_CYCLES}

Its Pins Are As Fast As They Can Be
    Boot
    FOR    ${address}    ${bits}    IN    &{FASTEST}
        ${speed}=                   Register    ${address}
        Should Be True              ${speed} & ${bits} == ${bits}
    END

The MPU Opens What Is Flash And Nothing Behind It
    Boot
    ${on}=                      Register    ${MPU_CTRL}
    Should Be True              ${on} & 5 == 5
    ${window}=                  Region    0
    ${flash}=                   Region    1
    Should Be True              ${window} == (${WEIGHTS}, 28, 1, 0, 1, 0)
    Should Be True              ${flash} == (${WEIGHTS}, ${SIZE_LOG2}, 1, 6, 1, 2)

The Self-Test Reads All Of It
    Boot
    Ask                         selftest    ^weights [0-9a-f]{8} ok$
    Wait For Line On Uart       ^ok selftest$    treatAsRegex=true

The Self-Test Finds A Damaged Byte
    Boot
    Another Byte                100
    Ask                         selftest    ^weights [0-9a-f]{8} wrong: converted with [0-9a-f]{8}$
    Wait For Line On Uart       ^err selftest    treatAsRegex=true
    Another Byte                100
    Ask                         selftest    ^ok selftest$

Weights Of Another Model Are Refused
    Create Board
    Another Byte                0
    Start Emulation
    Wait For Line On Uart       ^fault the flash beside the chip holds another model's weights    treatAsRegex=true

They Are Read Again After Each Restart
    Boot
    ${first}=                   Logits
    Execute Command             machine Reset
    Wait For Line On Uart       ready
    ${again}=                   Logits
    Should Be Equal             ${first}    ${again}
    Execute Command             sysbus.resetAndClock PowerCycle
    Wait For Line On Uart       ready
    ${again}=                   Logits
    Should Be Equal             ${first}    ${again}
    Ask                         reboot    ^ok reboot$
    Wait For Line On Uart       ready
    ${again}=                   Logits
    Should Be Equal             ${first}    ${again}

What Is Learned Beside Them Outlives A Power Cut
    Boot
    ${before}=                  Logits
    Train On Pattern            7    3
    ${learned}=                 Logits
    Should Not Be Equal         ${before}    ${learned}
    Ask                         save    ^ok save 1$
    Execute Command             sysbus.resetAndClock PowerCycle
    Wait For Line On Uart       ready
    ${again}=                   Logits
    Should Be Equal             ${learned}    ${again}
